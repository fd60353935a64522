"""Size of a report, seconds to make it, and milliseconds until a browser has loaded it.

Give one or more of DIR or results.json.

    python benchmarks/report.py out/demo runs/mitigations

Loads are medians of five in headless Chromium, from the start of the navigation to the end of the
load event.
"""

from __future__ import annotations

import shutil
import statistics
import sys
import tempfile
import time
from pathlib import Path

from playwright.sync_api import sync_playwright

from dpaudit.render import read_report
from dpaudit.render.page import render_page

LOADS = 5
TIMING = (
    "(() => { const t = performance.getEntriesByType('navigation')[0]; "
    "return t.loadEventEnd - t.startTime; })()"
)


def document(place: Path) -> Path:
    """The document in a folder, or the file itself."""
    names = ("results.json", "result.json")
    return next((place / n for n in names if (place / n).is_file()), place)


def main(places: list[str]) -> None:
    chromium = next(
        filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None
    )
    if chromium is None or not places:
        raise SystemExit("needs Chromium, and the folders of results as arguments")
    print(f"{'document':28} {'kB':>8} {'made in s':>10} {'loaded in ms':>13}")
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as started:
        browser = started.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        for place in map(Path, places):
            found = read_report(document(place))
            begin = time.perf_counter()
            html = render_page(found)
            seconds = time.perf_counter() - begin
            path = Path(folder) / "report.html"
            path.write_text(html, encoding="utf-8")
            loads = []
            for _ in range(LOADS):
                page = browser.new_page()
                page.goto(path.as_uri())
                page.wait_for_function(f"{TIMING} > 0")
                loads.append(page.evaluate(TIMING))
                page.close()
            print(
                f"{place.name:28} {len(html.encode()) / 1e3:8.0f} {seconds:10.1f} "
                f"{statistics.median(loads):13.0f}"
            )
        browser.close()


if __name__ == "__main__":
    main(sys.argv[1:])
