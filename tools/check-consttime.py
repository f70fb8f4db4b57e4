#!/usr/bin/env python3
"""Checks that no branch and no address of SM2 signing and key agreement depends on the secret.

Runs crates/crypto/examples/sm2_secret.rs, as packages are built (profile dist), under valgrind with
many secrets, and compares what the processor did: the address of each instruction, and the address
and size of each access to memory, in order, from the program's start to its end (valgrind's tool
'lackey'). One difference fails. Two ways that do depend on the secret must be told from the others,
so that the comparison is known to see them.

    tools/check-consttime.py [--secrets N]

The program is linked statically: a dynamic loader splits LD_PRELOAD, which valgrind sets, with a
function that reads four bytes at a time and looks each up in a table, and what stands behind the
variable may be the random bytes that every program is given. Its addresses differ from run to run
then, by the length of the argument.

What it cannot see: instructions whose own time depends on their operands (on the processors that
this is for, multiplication and addition take none), and machine code that another compiler makes.
"""

import argparse
import hashlib
import itertools
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

ORDER = 0xFFFFFFFEFFFFFFFFFFFFFFFFFFFFFFFF7203DF6B21C6052B53BBF40939D54123
TARGET = os.environ.get("CARGO_TARGET_DIR", "target")
PROGRAM = os.path.join(TARGET, "dist", "examples", "sm2_secret")


def secrets(count):
    """Numbers with long runs of equal bits at both ends, then some without a pattern."""
    chosen = [1, ORDER - 2, 1 << 255, (1 << 255) - 1, 0x55 * (1 << 256) // 255 % ORDER,
              int("aa" * 32, 16), (1 << 128) + 1, 0xFF << 120]
    for i in itertools.count():
        if len(chosen) >= count:
            return chosen[:count]
        digest = hashlib.sha256(b"tercio consttime %d" % i).digest()
        chosen.append(int.from_bytes(digest, "big") % (ORDER - 2) + 1)


def build():
    # At a fixed address, so that addresses can be looked up, and without a dynamic loader.
    subprocess.run(
        ["cargo", "rustc", "--quiet", "--locked", "--profile", "dist", "-p", "tercio-crypto",
         "--example", "sm2_secret", "--", "-C", "relocation-model=static",
         "-C", "target-feature=+crt-static"],
        check=True)


def traced(what, secret):
    """The running program's trace, line by line without valgrind's own."""
    command = ["env", "-i", "valgrind", "--tool=lackey", "--trace-mem=yes", PROGRAM, what]
    run = subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    lines = subprocess.Popen(
        ["grep", "-v", "^=="], stdin=run.stderr, stdout=subprocess.PIPE, env={"LC_ALL": "C"})
    run.stderr.close()
    run.stdin.write(secret.to_bytes(32, "big"))
    run.stdin.close()
    return run, lines


def trace(what, secret):
    """The digest of the trace, and its length in lines."""
    run, lines = traced(what, secret)
    digest, length = hashlib.sha256(), 0
    while chunk := lines.stdout.read(1 << 20):
        digest.update(chunk)
        length += chunk.count(b"\n")
    lines.wait()
    out = run.stdout.read()
    if run.wait() != 0 or not out or length == 0:
        sys.exit(f"{what}: the program failed under valgrind")
    return digest.hexdigest(), length


def first_difference(what, one, other):
    """Where two secrets part, in words."""
    pair = [traced(what, secret) for secret in (one, other)]
    said = "at the end of the shorter"
    last = b""
    for a, b in zip(*(lines.stdout for _, lines in pair)):
        if a != b:
            said = f"'{a.decode().strip()}' and '{b.decode().strip()}'"
            break
        if a.startswith(b"I"):
            last = a
    for run, lines in pair:
        lines.kill()
        run.kill()
        lines.wait()
        run.wait()
    address = last.split()[1].split(b",")[0].decode() if last else "0"
    place = subprocess.run(["addr2line", "-f", "-C", "-i", "-e", PROGRAM, "0x" + address],
                           capture_output=True, text=True).stdout.split("\n")
    return f"{said}, after the instruction at {address}: {' '.join(place[:4])}"


def main():
    args = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    args.add_argument("--secrets", type=int, default=8)
    count = max(2, args.parse_args().secrets)
    build()
    chosen, good = secrets(count), True
    with ThreadPoolExecutor(os.cpu_count() or 1) as pool:
        for what, equal in [("branch", False), ("index", False), ("sign", True), ("agree", True)]:
            # Two secrets are enough to tell what depends on them.
            some = chosen if equal else chosen[:2]
            traces = list(pool.map(lambda secret: trace(what, secret), some))
            differing = [s for s, t in zip(some, traces) if t != traces[0]]
            if equal and differing:
                good = False
                where = first_difference(what, some[0], differing[0])
                print(f"FAIL {what}: {len(differing)} of {len(some)} secrets give another trace")
                print(f"     {where}")
            elif not equal and not differing:
                good = False
                print(f"FAIL {what}: this depends on the secret, and the comparison does not see it")
            elif equal:
                print(f"{what}: {traces[0][1]} instructions and accesses, the same for {len(some)} secrets")
            else:
                print(f"{what}: told apart, as it must be")
    sys.exit(0 if good else 1)


if __name__ == "__main__":
    main()
