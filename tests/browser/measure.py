"""Measure the length of built pages and the time of filtering: ``python tests/browser/measure.py [HTML] [RUNS]``.

The first table has a column for each page of the folder (``docs/_build/html``): screens, words, printed pages, stops
for the keyboard, bytes, first paint and layout shift. The lines below are for a page of 500 runs, in milliseconds:
from the change of a control to the end of the layout that follows, and to the frame that shows it.
"""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any

from chromium import launched, served
from many_runs import write_project
from tabulate import tabulate

if TYPE_CHECKING:
    from playwright.sync_api import Browser

BUILT = Path(__file__).parents[2] / "docs/_build/html"
PAGES = ("hardware", "estimator", "memory", "out-of-memory")
WINDOWS = ((1400, 900), (1024, 900), (390, 844))
RUNS = 500
#: Adds up layout shifts.
SHIFTS = """
window.moved = 0;
new PerformanceObserver((list) => {
  for (const entry of list.getEntries()) if (!entry.hadRecentInput) window.moved += entry.value;
}).observe({ type: 'layout-shift', buffered: true });
"""
AT_WIDTH = """
() => ({
  screens: (document.documentElement.scrollHeight / innerHeight).toFixed(1),
  sideways: document.documentElement.scrollWidth - innerWidth,
  moved: window.moved.toFixed(4),
  painted: Math.round(performance.getEntriesByName('first-contentful-paint')[0].startTime),
})
"""
OF_PAGE = """
() => {
  const content = document.querySelector('[role=main], main');
  const all = [...content.querySelectorAll('a[href], button, select, input, summary, [tabindex="0"]')];
  const stops = all.filter((one) => one.checkVisibility() && one.tabIndex >= 0 && !one.disabled);
  const filter = document.querySelector('.verl-filter');
  const loaded = ['navigation', 'resource'].flatMap((type) => performance.getEntriesByType(type));
  const kinds = loaded.filter((one) => one.entryType === 'navigation' || /verl-/.test(one.name));
  return {
    words: content.textContent.split(/\\s+/).length,
    'words shown': content.innerText.split(/\\s+/).length,
    stops: stops.length,
    'stops to the filter': filter ? stops.findIndex((one) => filter.contains(one)) : '',
    'screens to the filter': filter ? (filter.getBoundingClientRect().top / innerHeight).toFixed(1) : '',
    'bytes, page': kinds[0].decodedBodySize,
    'bytes, ours beside it': kinds.slice(1).reduce((sum, one) => sum + one.decodedBodySize, 0),
  };
}
"""
#: Changes a control as a reader does, and forces a layout.
FILTER = """
async () => {
  const times = [];
  const frame = () => new Promise((resolve) => requestAnimationFrame(() => setTimeout(resolve)));
  for (const select of [...document.querySelectorAll('.verl-field select')]) {
    for (const option of [...select.options, select.options[0]]) {
      await frame();
      const start = performance.now();
      select.value = option.value;
      select.dispatchEvent(new Event('change', { bubbles: true }));
      document.body.getBoundingClientRect();
      const laidOut = performance.now() - start;
      await frame();
      times.push([laidOut, performance.now() - start]);
    }
  }
  return times;
}
"""


def main() -> None:
    """Measure the pages and the filter, and print both."""
    built = Path(sys.argv[1]) if len(sys.argv) > 1 else BUILT
    if not (built / "hardware.html").exists():
        sys.exit(f"{built} holds no documentation; run `make html` first")
    with launched() as browser:
        with served(built, {}) as address:
            columns = {name: measure_page(browser, f"{address}/{name}.html") for name in PAGES}
        rows = [[key, *(column[key] for column in columns.values())] for key in columns[PAGES[0]]]
        print(tabulate(rows, ["", *columns], colalign=("left", *["right"] * len(columns))))
        measure_filter(browser, int(sys.argv[2]) if len(sys.argv) > 2 else RUNS)


def measure_page(browser: Browser, address: str) -> dict[str, Any]:
    """Open a page in each window and return its figures."""
    figures: dict[str, Any] = {}
    for width, height in WINDOWS:
        context = browser.new_context(viewport={"width": width, "height": height})
        page = context.new_page()
        page.add_init_script(SHIFTS)
        # A theme's font that loads after the text changes line breaks; that is not our layout shift.
        page.route("**/*.woff*", lambda route: route.abort())
        page.goto(address)
        page.wait_for_load_state("networkidle")
        page.wait_for_timeout(500)
        figures |= {f"{name}, {width} px": figure for name, figure in page.evaluate(AT_WIDTH).items()}
        if width == WINDOWS[0][0]:
            figures |= page.evaluate(OF_PAGE)
            figures["printed pages"] = len(re.findall(rb"/Type\s*/Page[^s]", page.pdf(format="A4")))
        context.close()
    return figures


def measure_filter(browser: Browser, runs: int) -> None:
    """Build a page of many runs, change each control, and print the times."""
    with tempfile.TemporaryDirectory() as folder:
        source, out = write_project(Path(folder), runs, "sphinx_rtd_theme"), Path(folder) / "out"
        subprocess.run([sys.executable, "-m", "sphinx", "-q", "-b", "html", source, out], check=True)
        with served(out, {}) as address:
            page = browser.new_page(viewport={"width": 1440, "height": 900})
            page.goto(f"{address}/index.html")
            page.wait_for_selector(".verl-sort")
            times = page.evaluate(FILTER)
            page.close()
    for what, measured in zip(("laid out", "shown"), zip(*times, strict=True), strict=True):
        print(f"{runs} runs {what}: median {median(measured):.1f} ms, worst {max(measured):.1f} ms")


if __name__ == "__main__":
    main()
