#!/usr/bin/env python3
"""Holds the crates apart: no crate depends on what it must not know.

The table says which of our crates, and which outside crates with business of that kind, a crate
must not depend on, directly or through others. ARCHITECTURE.md gives the reasons.
"""

import json
import re
import subprocess
import sys

# Outside crates that bring sockets, threads, files, clocks, or a general-purpose serializer.
IO = {"mio", "rustix", "socket2", "tokio", "crossbeam-channel", "tempfile"}
SERIALIZERS = {"serde", "serde_json", "toml"}
STAGES = {
    "tercio-consensus", "tercio-ledger", "tercio-execution", "tercio-verify", "tercio-transport",
}
JOINED = {"tercio-replica", "tercio-client", "tercio-sim", "tercio-bench", "tercio"}
APPS = {"tercio-counter", "tercio-exchange", "tercio-kv", "tercio-bank"}

MUST_NOT_KNOW = {
    "tercio-types": IO | SERIALIZERS | STAGES | JOINED | APPS | {"tercio-wire", "tercio-crypto"},
    "tercio-crypto": IO | SERIALIZERS | STAGES | JOINED | APPS | {"tercio-wire"},
    "tercio-wire": IO | SERIALIZERS | STAGES | JOINED | APPS,
    "tercio-consensus": IO | SERIALIZERS | (STAGES - {"tercio-consensus"}) | JOINED | APPS,
    "tercio-ledger": {"mio", "tokio"} | SERIALIZERS | (STAGES - {"tercio-ledger"}) | JOINED | APPS,
    "tercio-execution": {"mio", "tokio"} | SERIALIZERS | (STAGES - {"tercio-execution"}) | JOINED,
    "tercio-verify": IO | SERIALIZERS | (STAGES - {"tercio-verify"}) | JOINED | APPS,
    "tercio-transport": {"tokio"} | SERIALIZERS | (STAGES - {"tercio-transport"}) | JOINED | APPS,
    "tercio-client": {"tercio-replica", "tercio-ledger", "tercio-consensus"} | APPS,
}
# Not of its own: the simulator uses the client's core, which does no I/O, but stands in one crate
# with the client that does.
MUST_NOT_NAME = {"tercio-sim": {"tercio-transport", "mio", "rustix", "tokio"}}
# Remote memory stands alone: it knows nothing of the engine and its ledger, nor they of it.
OURS = STAGES | JOINED | APPS | {"tercio-types", "tercio-wire", "tercio-crypto"}
for name in ("tercio-prism", "tercio-unsafe-sys"):
    MUST_NOT_KNOW[name] = {"mio", "tokio"} | OURS
for app in APPS:
    MUST_NOT_KNOW[app] = IO | (STAGES - {"tercio-execution"}) | JOINED


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
    for problem in problems:
        print(problem)
    return 1 if problems else 0


def output(*command):
    return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout


def metadata_of(metadata, package_id):
    return next(package for package in metadata["packages"] if package["id"] == package_id)


if __name__ == "__main__":
    sys.exit(main())
