#!/usr/bin/env python3
"""Makes the pages in docs/results from the records beside them.

  tools/results.py            writes docs/results/*.md and the table of figures in README.md
  tools/results.py --check    says which of them is not what the records make; exits 1 then

docs/results/figures.toml says which records and which field of them make each figure; no number
stands there that a record has. docs/measuring.md says how a new figure gets in."""

import json
import pathlib
import re
import statistics
import sys
import tomllib

ROOT = pathlib.Path(__file__).resolve().parent.parent
RESULTS = ROOT / "docs/results"
TABLE = RESULTS / "figures.toml"
BEGIN, END = "<!-- figures: begin -->", "<!-- figures: end -->"
MADE = "<!-- Made by tools/results.py from figures.toml and the records; do not edit. -->\n"
STEP = re.compile(r"([^.\[\]]*)(?:\[([^\]]*)\])?(?:\.|$)")
MAX_FRONT_WORDS = 1500


class Wrong(Exception):
    """The table of figures asks for something that the records do not have."""


def walk(value, path):
    """The field `path` of a record: `a.b`, `a[2]`, `a[1:]`, `a[key=word,other=word].b`."""
    at = 0
    while at < len(path):
        step = STEP.match(path, at)
        name, index = step.groups()
        if name:
            value = value[name]
        if index is not None:
            if "=" in index:
                wanted = dict(pair.split("=") for pair in index.split(","))
                hits = [v for v in value if all(str(v[k]) == w for k, w in wanted.items())]
                if len(hits) != 1:
                    raise Wrong(f"{len(hits)} entries are [{index}]")
                value = hits[0]
            elif ":" in index:
                begin, end = (int(part) if part else None for part in index.split(":"))
                value = value[begin:end]
            else:
                value = value[int(index)]
        at = step.end()
    return value


def records(name, lines=None, where=None):
    """Records of a file: those of these lines (from 1 on), or whose fields are as asked for."""
    every = [json.loads(line) for line in (RESULTS / name).read_text().splitlines()]
    if lines is not None:
        return [every[line - 1] for line in lines]
    return [r for r in every if all(r.get(key) == word for key, word in (where or {}).items())]


REDUCE = {"max": max, "min": min, "mean": statistics.fmean, "sum": sum}


def samples(figure, taken, path):
    """One value a record, or all of a list; a record's own median of pairs as (median, min, max, n)."""
    found = []
    for record in taken:
        value = walk(record, path)
        if isinstance(value, list) and "reduce" in figure:
            value = REDUCE[figure["reduce"]](value)
        if isinstance(value, dict) and len(taken) == 1:
            return value["median"], value["min"], value["max"], value["pairs"]
        if isinstance(value, dict):
            value = value["median"]
        found.extend(value if isinstance(value, list) else [value])
    return found


def one(figure, taken, key):
    """What the table says of the command or commit, or all of the records."""
    if key in figure:
        return figure[key]
    said = sorted({record.get(key) or "" for record in taken})
    if len(said) != 1 or not said[0]:
        raise Wrong(f"the records say {said} as {key}, and the table nothing")
    return said[0]


class Figure:
    def __init__(self, raw, topic):
        self.raw = {**topic.get("default", {}), **raw}
        raw = self.raw
        taken = records(raw["file"], raw.get("lines"), raw.get("where"))
        if not taken:
            raise Wrong("no record is asked for")
        found = samples(raw, taken, raw["value"])
        scale = raw.get("scale", 1)
        if isinstance(found, tuple):
            self.median, self.low, self.high = (scale * value for value in found[:3])
            self.n = found[3]
        else:
            if "over" in raw:
                under = samples(raw, taken, raw["over"])
            elif "over_lines" in raw or "over_where" in raw:
                others = records(raw["file"], raw.get("over_lines"), raw.get("over_where"))
                under = samples(raw, others, raw["value"])
            else:
                under = [1] * len(found)
            if len(under) != len(found):
                raise Wrong(f"{len(found)} records over {len(under)}")
            ratios = [scale * value / by for value, by in zip(found, under)]
            self.median, self.low, self.high = statistics.median(ratios), min(ratios), max(ratios)
            self.n = len(ratios)
        self.command = one(raw, taken, "command")
        self.commit = one(raw, taken, "commit")

    def number(self, value):
        digits = self.raw.get("digits", 0)
        return f"{round(value, digits):,.{max(digits, 0)}f}"

    def middle(self):
        return self.number(self.median) + self.raw.get("unit", "")

    def spread(self):
        low, high = self.number(self.low), self.number(self.high)
        return low if low == high else f"{low} to {high}"

    def target(self):
        """The target, and whether the median meets it, before it is rounded."""
        if "least" in self.raw:
            bound = self.raw["least"]
            return f">= {bound:,}, {'met' if self.median >= bound else '**missed**'}"
        if "most" in self.raw:
            bound = self.raw["most"]
            return f"<= {bound:,}, {'met' if self.median <= bound else '**missed**'}"
        return ""


def fill(text, figures):
    """Puts the medians of figures with an id in place of {id}."""
    for figure in figures:
        if "id" in figure.raw:
            text = text.replace("{" + figure.raw["id"] + "}", figure.middle())
    left = re.search(r"\{\w+\}", text)
    if left:
        raise Wrong(f"no figure has the id {left.group()}")
    return text.strip() + "\n"


def row(*cells):
    return "| " + " | ".join(cells) + " |\n"


def grid(raw):
    """A table of one field over two others, of one record."""
    record, = records(raw["file"], raw["lines"])
    head = row(raw["corner"], *(str(column) for column in raw["columns"]))
    text = head + row(*["---"] * (1 + len(raw["columns"])))
    for name, label in raw["rows"].items():
        cells = (
            walk(record, raw["value"].replace("ROW", name).replace("COLUMN", str(column)))
            for column in raw["columns"]
        )
        text += row(label, *(f"{value:,.0f}" for value in cells))
    machine, commit, command = raw["machine"], one(raw, [record], "commit"), one(raw, [record], "command")
    return f"{raw['what']} ({machine}, `{commit}`, `{command}`, one run):\n\n{text}\n"


def page(topic, figures, machines):
    text = f"# {topic['title']}\n\n{MADE}\n"
    text += row("figure", "median", "spread", "n", "target", "machine", "commit", "command")
    text += row(*["---"] * 8)
    for figure in figures:
        raw = figure.raw
        text += row(raw["what"], figure.middle(), figure.spread(), str(figure.n), figure.target(),
                    raw["machine"], f"`{figure.commit}`", f"`{figure.command}`")
    text += "\n"
    for raw in topic.get("grids", []):
        text += grid(raw)
    text += fill(topic["holds"], figures) + "\n"
    files = sorted({figure.raw["file"] for figure in figures}
                   | {raw["file"] for raw in topic.get("grids", [])} | set(topic.get("also", [])))
    text += "Records: " + ", ".join(f"[{name}]({name})" for name in files) + ". "
    used = sorted({figure.raw["machine"] for figure in figures})
    text += " ".join(f"{name}: {machines[name]}." for name in used) + "\n"
    return text


def front(table, topics):
    text = f"# Results\n\n{MADE}\n{table['front'].strip()}\n\n"
    for name, what in table["machines"].items():
        text += f"- {name}: {what}.\n"
    for topic, figures in topics:
        text += f"\n## [{topic['title']}]({topic['page']}.md)\n\n"
        text += row("figure", "median", "target", "commit, command") + row(*["---"] * 4)
        before = None
        for figure in figures:
            if not figure.raw.get("front", False):
                continue
            made = f"`{figure.commit}`, `{figure.command}`"
            machine = "" if figure.raw["machine"] == "Xeon" else f" ({figure.raw['machine']})"
            text += row(figure.raw["what"] + machine, figure.middle(), figure.target(),
                        "as above" if made == before else made)
            before = made
    text += "\n" + table["back"].strip() + "\n"
    words = len(text.split())
    if words > MAX_FRONT_WORDS:
        raise Wrong(f"docs/results/README.md would have {words} words, above {MAX_FRONT_WORDS}")
    return text


def readme(topics):
    """README.md with its table between the two marks made anew."""
    text = (ROOT / "README.md").read_text()
    made = row("figure", "median", "machine") + row(*["---"] * 3)
    for _, figures in topics:
        for figure in figures:
            if "readme" in figure.raw:
                made += row(figure.raw["readme"], figure.middle(), figure.raw["machine"])
    before, rest = text.split(BEGIN)
    return before + BEGIN + "\n" + made + END + rest.split(END)[1]


def pages():
    table = tomllib.loads(TABLE.read_text())
    topics = []
    for topic in table["topics"]:
        figures = []
        for raw in topic["figures"]:
            try:
                figures.append(Figure(raw, topic))
            except (Wrong, KeyError, IndexError, ValueError) as error:
                raise Wrong(f"{topic['page']}: {raw.get('what')}: {error!r}") from error
        topics.append((topic, figures))
    made = {RESULTS / f"{t['page']}.md": page(t, f, table["machines"]) for t, f in topics}
    made[RESULTS / "README.md"] = front(table, topics)
    made[ROOT / "README.md"] = readme(topics)
    return made


def main():
    if sys.argv[1:] not in ([], ["--check"]):
        sys.exit(__doc__)
    try:
        made = pages()
    except Wrong as error:
        sys.exit(f"docs/results/figures.toml: {error}")
    check = sys.argv[1:] == ["--check"]
    stale = [p for p, text in made.items() if not p.exists() or p.read_text() != text]
    for path in stale:
        if check:
            print(f"{path.relative_to(ROOT)}: not what the records make; run tools/results.py")
        else:
            path.write_text(made[path])
            print(f"{path.relative_to(ROOT)}: written")
    strangers = sorted(set(RESULTS.glob("*.md")) - set(made))
    for path in strangers:
        print(f"{path.relative_to(ROOT)}: no topic of figures.toml makes this page")
    print(f"{len(made)} pages, {len(stale)} {'stale' if check else 'written'}")
    return 1 if strangers or (check and stale) else 0


if __name__ == "__main__":
    sys.exit(main())
