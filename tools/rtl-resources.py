#!/usr/bin/env python3
"""What the card of rtl/ takes of an FPGA, by yosys: a table of modules, with what is inside of each,
between the marks in rtl/README.md. `--check` compares with it and writes nothing.

The numbers are yosys's own after mapping, before any placing; there is no clock in them.
"""

import pathlib
import re
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
README = ROOT / "rtl/README.md"
BEGIN, END = "<!-- resources: begin -->\n", "<!-- resources: end -->\n"
ROWS = (
    "sha256_core", "hmac_engine", "hmac_pool", "preprocess", "key_table", "murmur3",
    "collision_manager", "upload", "packet_hold", "tercio_nic",
)
# What is counted, by the names of 7-series cells.
COLUMNS = {
    "LUT": {r"LUT[1-6]": 1},
    "memory LUT": {r"RAM(32|64)M": 4},
    "FF": {r"FD[RSCP]E": 1},
    "CARRY4": {r"CARRY4": 1},
    "DSP48": {r"DSP48E1": 1},
    "block RAM (36 kbit)": {r"RAMB36E1": 1, r"RAMB18E1": 0.5},
}


def synthesize():
    """Each module's cells by type, as yosys names both."""
    sources = sorted((ROOT / "rtl/src").glob("*.sv"), key=lambda path: (path.stem != "nic_pkg", path))
    with tempfile.NamedTemporaryFile(mode="r", suffix=".txt") as out:
        script = [f"read_verilog -sv {path}" for path in sources]
        script += ["synth_xilinx -family xc7 -top tercio_nic", f"tee -q -o {out.name} stat"]
        subprocess.run(["yosys", "-q", "-p", "; ".join(script)], check=True)
        return modules_of(out.read())


def modules_of(text):
    """Reads yosys's statistics. (Its JSON is none in 0.23 where modules are within modules.)"""
    modules = {}
    for line in text.splitlines():
        if heading := re.fullmatch(r"=== (.*) ===", line):
            cells = modules.setdefault(heading[1], {})
        elif cell := re.fullmatch(r" {5}(\S+) +(\d+)", line):
            cells[cell[1]] = int(cell[2])
    del modules["design hierarchy"]
    return modules


def within(modules, name):
    """The cells of a module and of all that it is made of."""
    total = {}
    for cell, count in modules[name].items():
        parts = within(modules, cell) if cell in modules else {cell: 1}
        for part, more in parts.items():
            total[part] = total.get(part, 0) + count * more
    return total


def table(modules):
    lines = [["module", *COLUMNS], ["---"] * (1 + len(COLUMNS))]
    for row in ROWS:
        # With parameters: $paramod$HASH\fifo, $paramod\hmac_pool\LANES=...
        name = next(name for name in modules if re.search(rf"(^|\\){row}(\\|$)", name))
        cells = within(modules, name)
        sums = [
            sum(n * weight for cell, n in cells.items()
                for pattern, weight in patterns.items() if re.fullmatch(pattern, cell))
            for patterns in COLUMNS.values()
        ]
        lines.append([f"`{row}`", *(f"{value:g}" if value < 1e5 else str(value) for value in sums)])
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def main():
    made = table(synthesize())
    print("".join(f"rtl: {line}\n" for line in made.splitlines()), end="")
    text = README.read_text(encoding="utf-8")
    head, _, tail = text.partition(BEGIN)
    new = head + BEGIN + made + END + tail.partition(END)[2]
    if "--check" not in sys.argv[1:]:
        README.write_text(new, encoding="utf-8")
    elif new != text:
        print("rtl/README.md says something else: run tools/rtl-resources.py, with yosys 0.23")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
