#!/usr/bin/env python3
"""Runs random runs and unit tests under each mutant of crates/types/src/zoo.rs, and each defence taken
away, and writes down who noticed.

  tools/mutants.py                  whatever docs/results/mutants.jsonl lacks; then the table
  tools/mutants.py NAME...          these anew
  tools/mutants.py --table          the table of docs/testing.md from the file, and nothing else
  tools/mutants.py --demand         fails unless all mutants are caught, and 15 by 100 random seeds

Each name is one line of the file: random seeds (at most --seeds, until one shows it), then the tests
of consensus, ledger, sync and replica, one crate after the other until one shows it. A test that goes on
for --limit seconds counts as caught: it waits for what never comes.
"""

import argparse
import json
import os
import pathlib
import re
import resource
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
RESULTS = ROOT / "docs/results/mutants.jsonl"
DOCUMENT = ROOT / "docs/testing.md"
BEGIN, END = "<!-- mutants: begin -->\n", "<!-- mutants: end -->\n"
CRATES = ["consensus", "ledger", "sync", "replica"]
FEATURES = "tercio-consensus/zoo,tercio-execution/zoo,tercio-ledger/zoo"
# Far above what a test program needs, in bytes.
MOST_MEMORY = 4 << 30
# The demands of the lane.
LEAST, LEAST_SOON, SOON = 20, 15, 100


def simulator(*arguments):
    command = ["cargo", "run", "--quiet", "--locked", "--release", "-p", "tercio-sim"]
    command += ["--features", "zoo", "--bin", "tercio-sim", "--", "mutants", *arguments]
    return subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, text=True).stdout


def test_binaries():
    """The test programs of each crate, each module of the integration tests for one."""
    command = ["cargo", "test", "--locked", "--no-run", "--message-format=json"]
    command += [word for crate in CRATES for word in ("-p", f"tercio-{crate}")]
    built = subprocess.run(
        [*command, "--features", FEATURES], cwd=ROOT, stdout=subprocess.PIPE, text=True, check=True
    )
    found = {crate: [] for crate in CRATES}
    for message in map(json.loads, built.stdout.splitlines()):
        if message.get("executable") and message["profile"]["test"]:
            crate = pathlib.Path(message["manifest_path"]).parent.name
            program = message["executable"]
            if message["target"]["name"] == "integration":
                found[crate] += [(program, module) for module in modules(program)]
            else:
                found[crate].append((program, None))
    return found


def modules(program):
    """The modules of a test program that have tests."""
    listed = subprocess.run([program, "--list"], stdout=subprocess.PIPE, text=True, check=True)
    return sorted(set(re.findall(r"^(\w+)::\S+: test$", listed.stdout, re.M)))


def noticed_by(crate, binary, part, name, limit):
    """The tests of one program, or of a module of it, that fail under a mutant, or hang."""
    # Cases that fail under a mutant are nobody's regressions.
    settings = dict(PROPTEST_CASES="256", PROPTEST_DISABLE_FAILURE_PERSISTENCE="1")
    environment = dict(os.environ, TERCIO_MUTANT=name, RUST_BACKTRACE="0", **settings)
    # Names begin with the module of the integration tests, or else with the program.
    before = "" if part else re.sub(r"-[0-9a-f]+$", "", pathlib.Path(binary).name) + "::"
    folder = ROOT / "crates" / crate
    command = [binary, "--test-threads=1", *([part + "::"] if part else [])]
    # What never ends may fill the memory, too.
    bound = lambda: resource.setrlimit(resource.RLIMIT_AS, (MOST_MEMORY, MOST_MEMORY))
    options = dict(preexec_fn=bound, cwd=folder, env=environment, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    try:
        said = subprocess.run(command, timeout=limit, **options).stdout.decode()
    except subprocess.TimeoutExpired as late:
        said = (late.stdout or b"").decode()
    failed = re.findall(r"^test (\S+) \.\.\. FAILED", said, re.M)
    if "test result:" not in said:
        begun = re.findall(r"^test (\S+) \.\.\. *$", said.splitlines()[-1] if said else "", re.M)
        failed += [f"{test} (never ends)" for test in begun]
    return [before + test for test in failed]


def unit_tests(binaries, name, limit):
    for crate in CRATES:
        programs = binaries[crate]
        failed = [test for program in programs for test in noticed_by(crate, *program, name, limit)]
        if failed:
            return crate, failed
    return None, []


def read():
    lines = RESULTS.read_text().splitlines() if RESULTS.exists() else []
    return {entry["name"]: entry for entry in map(json.loads, lines)}


def write(results):
    RESULTS.write_text("".join(json.dumps(entry) + "\n" for entry in results.values()))


def table(results):
    rows = ["| what is wrong | name | random runs | unit tests |", "|---|---|---|---|"]
    for entry in results.values():
        runs = f"none of {entry['tried']}"
        if entry["seeds"]:
            runs = f"{entry['property']}, after {entry['seeds']}"
        tests = entry["tests"]
        shown = ", ".join(f"`{test}`" for test in tests[:2]) or "none"
        if len(tests) > 2:
            shown += f" and {len(tests) - 2} more"
        rows.append(f"| {entry['what']} | `{entry['name']}` | {runs} | {shown} |")
    return "\n".join(rows) + "\n"


def put_table(results):
    text = DOCUMENT.read_text()
    head, rest = text.split(BEGIN)
    tail = rest.split(END)[1]
    DOCUMENT.write_text(head + BEGIN + table(results) + END + tail)


def demand(results):
    mutants = [entry for entry in results.values() if entry["kind"] == "mutant"]
    lost = [e["name"] for e in results.values() if not e["seeds"] and not e["tests"]]
    alone = [e["name"] for e in mutants if not e["tests"]]
    soon = [e for e in mutants if e["seeds"] and e["seeds"] <= SOON]
    print(f"{len(mutants)} mutants, {len(soon)} of them caught within {SOON} random seeds")
    for name in lost:
        print(f"FAIL nothing notices {name}")
    for name in alone:
        print(f"FAIL no unit test notices {name}")
    return len(mutants) >= LEAST and len(soon) >= LEAST_SOON and not lost and not alone


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("names", nargs="*")
    parser.add_argument("--seeds", type=int, default=700)
    parser.add_argument("--limit", type=int, default=60)
    parser.add_argument("--json", action="store_true", help="print each line as it comes")
    parser.add_argument("--mutants", action="store_true", help="leave the defences out")
    parser.add_argument("--table", action="store_true")
    parser.add_argument("--demand", action="store_true")
    parser.add_argument("--results", type=pathlib.Path, help="another file than the one in docs")
    asked = parser.parse_args()
    if asked.results:
        globals()["RESULTS"] = asked.results
    results = read()
    if not asked.table:
        names = asked.names or simulator("--list").split()
        if asked.mutants:
            names = [name for name in names if not re.match(r"f\d\d_", name)]
        wanted = [name for name in names if asked.names or name not in results]
        binaries = test_binaries() if wanted else {}
        for name in wanted:
            entry = json.loads(simulator(name, "--json", "--seeds", str(asked.seeds)))
            entry["crate"], entry["tests"] = unit_tests(binaries, name, asked.limit)
            results[name] = entry
            write(results)
            print(json.dumps(entry) if asked.json else table({name: entry}).splitlines()[-1], flush=True)
    if DOCUMENT.exists() and not asked.results:
        put_table(results)
    return 0 if not asked.demand or demand(results) else 1


if __name__ == "__main__":
    sys.exit(main())
