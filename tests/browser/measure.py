"""How long it takes to filter 500 runs: ``python tests/browser/measure.py [RUNS] [THEME]``.

Printed are the median and the worst of many changes in milliseconds, as the page itself measures them: from the
change of a control to the end of the layout that follows, and to the frame that shows it.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path
from statistics import median

from chromium import launched, served
from many_runs import write_project

#: Changes a control as a reader does, and has the page laid out.
MEASURE = """
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
LOADED = """
() => {
  const [page] = performance.getEntriesByType('navigation');
  const paint = performance.getEntriesByName('first-contentful-paint')[0];
  return [paint.startTime, page.domContentLoadedEventStart];
}
"""


def main() -> None:
    """Build, open, measure, print."""
    runs = int(sys.argv[1]) if len(sys.argv) > 1 else 500
    theme = sys.argv[2] if len(sys.argv) > 2 else "sphinx_rtd_theme"
    with tempfile.TemporaryDirectory() as folder, launched() as browser:
        source = write_project(Path(folder), runs, theme)
        out = Path(folder) / "out"
        subprocess.run([sys.executable, "-m", "sphinx", "-q", "-b", "html", source, out], check=True)
        with served(out, {}) as address:
            page = browser.new_page(viewport={"width": 1440, "height": 900})
            page.goto(f"{address}/index.html")
            page.wait_for_selector(".verl-filter")
            times = page.evaluate(MEASURE)
            painted, ready = page.evaluate(LOADED)
            page.close()
    for what, measured in zip(("laid out", "shown"), zip(*times, strict=True), strict=True):
        print(
            f"{runs} runs, {theme}: {what} after {median(measured):.1f} ms, at worst {max(measured):.1f} ms"
        )
    print(f"first paint after {painted:.0f} ms, scripts have run after {ready:.0f} ms")


if __name__ == "__main__":
    main()
