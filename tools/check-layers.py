#!/usr/bin/env python3
"""Holds the crates apart: no crate depends on what it must not know.

The table says which of our crates, and which outside crates with business of that kind, a crate
must not depend on, directly or through others. ARCHITECTURE.md gives the reasons. Tests that nothing
runs are problems, too: a file that neither the crate's tests/main.rs nor its Cargo.toml names, unit
tests in a target with `test = false`.
"""

import json
import pathlib
import re
import subprocess
import sys

# Outside crates that bring sockets, threads, files, clocks, or a general-purpose serializer.
IO = {"mio", "rustix", "socket2", "tokio", "crossbeam-channel", "tempfile"}
SERIALIZERS = {"serde", "serde_json", "toml"}
STAGES = {
    "tercio-consensus", "tercio-ledger", "tercio-execution", "tercio-verify", "tercio-transport",
}
# What stands on the stages, up to whole networks and programs.
JOINED = {
    "tercio-genesis", "tercio-sync", "tercio-replica", "tercio-client", "tercio-network",
    "tercio-cli", "tercio",
}
# What looks at the product from outside: nothing of the product stands on it.
OUTSIDE = {
    "tercio-sim", "tercio-bench", "tercio-attack", "tercio-sequencer", "tercio-rtl-cosim",
    "tercio-repro",
}
APPS = {"tercio-counter", "tercio-exchange", "tercio-kv", "tercio-bank"}
ALL_APPS = APPS | {"tercio-registry"}
ABOVE = JOINED | OUTSIDE | ALL_APPS

MUST_NOT_KNOW = {
    "tercio-types": IO | SERIALIZERS | STAGES | ABOVE | {"tercio-wire", "tercio-crypto"},
    "tercio-crypto": IO | SERIALIZERS | STAGES | ABOVE | {"tercio-wire"},
    "tercio-wire": IO | SERIALIZERS | STAGES | ABOVE,
    "tercio-consensus": IO | SERIALIZERS | (STAGES - {"tercio-consensus"}) | ABOVE,
    "tercio-ledger": {"mio", "tokio"} | SERIALIZERS | (STAGES - {"tercio-ledger"}) | ABOVE,
    "tercio-execution": {"mio", "tokio"} | SERIALIZERS | (STAGES - {"tercio-execution"}) | ABOVE,
    "tercio-verify": IO | SERIALIZERS | (STAGES - {"tercio-verify"}) | ABOVE,
    "tercio-transport": {"tokio"} | SERIALIZERS | (STAGES - {"tercio-transport"}) | ABOVE,
    # What is fetched and given: neither the stages that do it nor what a frame is verified with.
    "tercio-sync": IO | SERIALIZERS | {"tercio-verify", "tercio-transport"}
    | (ABOVE - {"tercio-sync"}),
    # How members run is none of its business, nor is any application.
    "tercio-genesis": {"mio", "tokio", "tercio-verify", "tercio-transport"}
    | (ABOVE - {"tercio-genesis"}),
    "tercio-client": {
        "tercio-replica", "tercio-sync", "tercio-ledger", "tercio-consensus", "tercio-execution",
    }
    | OUTSIDE | ALL_APPS,
    "tercio-replica": {"tercio-client", "tercio-network"} | OUTSIDE | ALL_APPS,
    "tercio-network": OUTSIDE | ALL_APPS,
    # What another author's protocol would know.
    "tercio-sequencer": IO | SERIALIZERS | (STAGES - {"tercio-consensus"})
    | (ABOVE - {"tercio-sequencer"}),
}
# Not of its own: the simulator uses the client's core, which does no I/O, but stands in one crate
# with the client that does. Programs measure, so the command line and what re-exports it reach
# `bench`; nothing below them may.
MUST_NOT_NAME = {
    "tercio-sim": {"tercio-transport", "mio", "rustix", "tokio"},
    # An attacker has what lies outside of a replica: its files, its links, what it says of itself.
    "tercio-attack": STAGES - {"tercio-transport", "tercio-ledger"} | {"tercio-sync", "tercio-cli"},
    "tercio": {"tercio-bench", "tercio-repro", "tercio-sequencer"},
    "tercio-cli": {"tercio-sequencer"},
}
# Remote memory stands alone: it knows nothing of the engine and its ledger, nor they of it.
OURS = STAGES | ABOVE | {"tercio-types", "tercio-wire", "tercio-crypto"}
for name in ("tercio-prism", "tercio-unsafe-sys"):
    MUST_NOT_KNOW[name] = {"mio", "tokio"} | OURS
# Published figures know the program by its command lines and what it prints, and nothing of it.
MUST_NOT_KNOW["tercio-repro"] = {"mio", "tokio", "tercio-prism"} | OURS - {"tercio-repro"}
for app in APPS:
    MUST_NOT_KNOW[app] = IO | (STAGES - {"tercio-execution"}) | ABOVE
MUST_NOT_KNOW["tercio-registry"] = OUTSIDE | (JOINED - {"tercio-genesis"})
# A card knows frames and keys, and nothing of what stands on them.
MUST_NOT_KNOW["tercio-rtl-cosim"] = STAGES | (ABOVE - {"tercio-rtl-cosim"})
# Only tests have business with these.
for name in STAGES | JOINED | ALL_APPS:
    MUST_NOT_KNOW[name] = MUST_NOT_KNOW.get(name, set()) | {
        "tercio-unsafe-alloc-count", "tercio-unsafe-libcrypto", "tercio-unsafe-rtl",
    } - ({"tercio-unsafe-libcrypto"} if name in ("tercio-cli", "tercio") else set())


# Within a crate: a contract, and the modules of its implementations, which it must not name.
CONTRACTS = {
    "crates/consensus/src/protocol.rs": {"pbft"},
    "crates/consensus/src/kind.rs": {"pbft"},
    "crates/execution/src/application.rs": {
        "Engine", "Keyed", "Store", "client_table", "engine", "store", "transaction", "trie",
    },
    "crates/genesis/src/app.rs": {"client_home", "files", "replica_home"},
}


def contract_problems():
    for path, forbidden in CONTRACTS.items():
        try:
            with open(path, encoding="utf-8") as file:
                lines = [line for line in file if not line.lstrip().startswith("//")]
        except FileNotFoundError:
            yield f"no file {path}: correct the table"
            continue
        for used in re.findall(r"\bcrate::(\{[^}]*\}|\w+)", "".join(lines)):
            for name in sorted(forbidden.intersection(re.findall(r"\w+", used))):
                yield f"a contract must not name its implementation: {path} -> {name}"


def main():
    # Without a platform, cargo would fetch the crates of all of them.
    host = re.search(r"^host: (.*)$", output("rustc", "-vV"), re.MULTILINE).group(1)
    metadata = json.loads(
        output("cargo", "metadata", "--format-version=1", "--locked", "--filter-platform", host)
    )
    names = {package["id"]: package["name"] for package in metadata["packages"]}
    # Ordinary dependencies only: tests may use more.
    edges = {
        node["id"]: [
            dep["pkg"]
            for dep in node["deps"]
            if any(kind["kind"] is None for kind in dep["dep_kinds"])
        ]
        for node in metadata["resolve"]["nodes"]
    }
    ours = {names[member]: member for member in metadata["workspace_members"]}
    named = [*MUST_NOT_KNOW, *MUST_NOT_NAME]
    problems = [f"no crate {name}: correct the table" for name in named if name not in ours]
    problems.extend(contract_problems())
    for name, member in ours.items():
        if metadata_of(metadata, member).get("description") is None:
            problems.append(f"{name} has no description in its Cargo.toml")
        forbidden = MUST_NOT_KNOW.get(name, set())
        # Breadth first, so that the shortest way is the one that is reported.
        ways, front = {member: [name]}, [member]
        while front:
            here = front.pop(0)
            for there in edges[here]:
                if there not in ways:
                    ways[there] = ways[here] + [names[there]]
                    front.append(there)
        for there in edges[member]:
            if names[there] in MUST_NOT_NAME.get(name, set()):
                problems.append(f"must not depend: {name} -> {names[there]}")
        for way in ways.values():
            # What an outside crate uses inside is its own affair.
            through_ours = all(step in ours for step in way[:-1])
            if way[-1] in forbidden and len(way) > 1 and through_ours:
                problems.append("must not depend: " + " -> ".join(way))
    for member in ours.values():
        problems += tests_left_out(metadata_of(metadata, member))
    for problem in problems:
        print(problem)
    return 1 if problems else 0


def tests_left_out(package):
    """The files of the crate's tests that belong to no test program."""
    programs = {pathlib.Path(target["src_path"]) for target in package["targets"]}
    folder = pathlib.Path(package["manifest_path"]).parent / "tests"
    main = folder / "main.rs"
    modules = re.findall(r"^mod (\w+);", main.read_text(), re.M) if main in programs else []
    for file in sorted(folder.glob("*.rs")):
        if file not in programs and file.stem not in modules:
            yield f"no test program has {file}: name it in {main}, or in {package['manifest_path']}"
    for target in package["targets"]:
        source = pathlib.Path(target["src_path"])
        # A library's is all of its folder.
        sources = source.parent.glob("**/*.rs") if "lib" in target["kind"] else [source]
        if not target["test"] and any("#[test]" in file.read_text() for file in sources):
            yield f"{package['manifest_path']}: {target['name']} has unit tests, and 'test = false'"


def output(*command):
    return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout


def metadata_of(metadata, package_id):
    return next(package for package in metadata["packages"] if package["id"] == package_id)


if __name__ == "__main__":
    sys.exit(main())
