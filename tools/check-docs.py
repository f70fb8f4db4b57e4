#!/usr/bin/env python3
"""Checks documents against the tree: every relative link leads somewhere (its #heading too), and
every path in backticks that looks like one of the repository's files exists."""

import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
CODE = re.compile(r"`([^`\n]+)`")
FENCE = re.compile(r"^(```|~~~).*?^\1", re.MULTILINE | re.DOTALL)
TOPS = ("crates/", "apps/", "unsafe/", "docs/", "tools/", "examples/", ".ci/", "bpf/", "rtl/", "sdk/")
# `path/file.rs`, with an optional `::item`, that must be in the file.
PATH = re.compile(r"^([\w./-]+?)(?:::([\w:]+))?$")


def headings(text):
    seen = {}
    for line in FENCE.sub("", text).splitlines():
        match = re.match(r"#{1,6}\s+(.*)", line)
        if not match:
            continue
        title = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", match.group(1)).replace("`", "")
        slug = re.sub(r"[^\w\- ]", "", title.strip().lower()).replace(" ", "-")
        count = seen.get(slug, 0)
        seen[slug] = count + 1
        yield slug if count == 0 else f"{slug}-{count}"


def problems_of(path):
    text = path.read_text(encoding="utf-8")
    prose = FENCE.sub("", text)
    for target in LINK.findall(CODE.sub("", prose)):
        if re.match(r"[a-z][a-z0-9+.-]*:", target):
            continue
        name, _, anchor = target.partition("#")
        there = (path.parent / name).resolve() if name else path
        if not there.exists():
            yield f"link to {target}: no such file"
        elif anchor and there.suffix == ".md" and anchor not in headings(there.read_text()):
            yield f"link to {target}: no such heading"
    for code in CODE.findall(prose):
        match = PATH.match(code)
        if not match or "*" in code or not code.startswith(TOPS):
            continue
        name, item = match.groups()
        there = ROOT / name
        if not there.exists():
            yield f"`{code}`: no such file"
        elif item and there.is_file():
            word = item.rsplit("::", 1)[-1]
            if not re.search(rf"\b{re.escape(word)}\b", there.read_text(encoding="utf-8")):
                yield f"`{code}`: the file does not say {word}"


def main():
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard", "*.md"],
        cwd=ROOT, check=True, stdout=subprocess.PIPE, text=True,
    ).stdout
    found = 0
    documents = sorted(filter(None, listed.split("\0")))
    for name in documents:
        if not (ROOT / name).exists():
            continue
        for problem in problems_of(ROOT / name):
            print(f"{name}: {problem}")
            found += 1
    print(f"{len(documents)} documents, {found} problems")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
