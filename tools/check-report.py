#!/usr/bin/env python3
"""Opens a report of `tercio repro` in headless Chromium, without a network.

The report is one of two tiny figures, made for real. Nothing may appear on the page's console, and
each picture must have been drawn: a copy of the page gets a script that measures what each SVG has
on it, and writes that into the document, which Chromium then prints.
"""

import html
import json
import pathlib
import re
import subprocess
import sys
import tempfile

FIGURE = """
seed = "004"
item = "{name}"
title = "Throughput <of> {name} & more"
published = "some"
[runs]
quick_repetitions = 1
cost_s = 3
quick_cost_s = 3
[x]
label = "clients"
values = [1, 2]
[y]
label = "requests/s"
[[series]]
name = "here"
command = "bench bft --closed --threads --seconds 1 --clients {{x}}"
value = "throughput_rps"
[[points]]
name = "there"
points = [[1, 20000], [2, 30000]]
[[claim]]
holds = 'min("here") >= 1'
"""
# Each picture's size, and how many of its shapes have one.
PROBE = """<pre id="probe"></pre><script>
const all = [...document.querySelectorAll("svg")].map(svg => ({
  width: svg.getBoundingClientRect().width, height: svg.getBoundingClientRect().height,
  shapes: [...svg.querySelectorAll("circle,polyline,line,rect,text")]
    .filter(s => { const b = s.getBBox(); return b.width + b.height > 0; }).length,
  dots: svg.querySelectorAll("circle").length }));
document.getElementById("probe").textContent = JSON.stringify(all);
</script></body>"""


def chromium(page, profile):
    arguments = [
        "chromium", "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage",
        f"--user-data-dir={profile}", "--host-resolver-rules=MAP * ~NOTFOUND",
        "--enable-logging=stderr", "--dump-dom", page.as_uri(),
    ]
    run = subprocess.run(arguments, capture_output=True, text=True, timeout=300, check=True)
    return run.stdout, [line for line in run.stderr.splitlines() if ":CONSOLE" in line]


def main():
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        figures, out = folder / "figures", folder / "out"
        figures.mkdir()
        for name in ("one", "two"):
            (figures / f"004-{name}.toml").write_text(FIGURE.format(name=name))
        subprocess.run(
            ["cargo", "run", "--quiet", "--locked", "-p", "tercio", "--", "repro", "all", "--quick",
             "--figures", figures, "--out", out],
            check=True,
        )
        page = out / "report.html"
        _, said = chromium(page, folder / "profile")
        probed = out / "probed.html"
        probed.write_text(page.read_text().replace("</body>", PROBE))
        document, also_said = chromium(probed, folder / "profile")
    probe = re.search(r'<pre id="probe">(.*?)</pre>', document, re.S)
    pictures = json.loads(html.unescape(probe.group(1))) if probe else []
    drawn = [p for p in pictures if min(p["width"], p["height"]) > 100 and p["shapes"] > 10 and p["dots"]]
    print(f"repro-page: {len(drawn)} of 2 pictures drawn, {len(said + also_said)} console messages")
    for line in said + also_said:
        print(line)
    return 0 if len(drawn) == len(pictures) == 2 and not said + also_said else 1


if __name__ == "__main__":
    sys.exit(main())
