"""The README's picture of the demo; after `make demo`:

`python docs/studies/picture.py dpaudit-demo FILE.svg`
"""

import re
import sys
from pathlib import Path

from dpaudit.render import read_report
from dpaudit.render.charts import draw_chart
from dpaudit.report import Chart

LIGHT = {
    "ink": "#1b1f24",
    "calm": "#2f6f8f",
    "alarm": "#b3261e",
    "quiet": "#6b7480",
    "paper": "#ffffff",
}
DARK = {
    "ink": "#e6e9ed",
    "calm": "#7cc0e0",
    "alarm": "#ff8a7a",
    "quiet": "#9aa4b0",
    "paper": "#0d1117",
}

folder, target = (Path(name) for name in sys.argv[1:])
report = read_report(folder / "results.json")
charts = [
    block
    for section in report.sections
    for block in section.blocks
    if isinstance(block, Chart) and block.title == "Releases along the key"
]
picture = draw_chart(charts[0], name="phases") if charts else None
if picture is None:
    sys.exit(f"{folder}: no phases in its results; dpaudit demo --out {folder} writes them")


def css(colours: dict[str, str]) -> str:
    named = "".join(f"--{name}:{value};" for name, value in colours.items())
    return f"svg{{{named}color:{colours['ink']};background:{colours['paper']}}}"


style = (
    f"<style>{css(LIGHT)}@media(prefers-color-scheme:dark){{{css(DARK)}}}"
    "text{font-family:sans-serif}</style>"
)
title = f"<title>{picture.alt}</title>"
svg = re.sub(
    r"(<svg\b)([^>]*>)",
    rf'\1 xmlns="http://www.w3.org/2000/svg"\2{title}{style}',
    picture.svg,
    count=1,
)
target.write_text(svg + "\n", encoding="utf-8")
print(f"{target}: {len(svg):,} bytes")
