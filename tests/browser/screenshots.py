"""Take screenshots of the main pages, for review: ``make screenshots``.

Write ``docs/_build/screenshots/<theme>-<scheme>-<width>-<page>-first.png`` (the first screen) and ``-whole.png``, of the
hardware page also ``-filtered.png``, and each page as it prints.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

sys.path.append(str(Path(__file__).parents[1]))
from chromium import launched, served
from themes import ROOT, SCHEMES, build_once

if TYPE_CHECKING:
    from playwright.sync_api import Browser

PAGES = ("hardware", "estimator", "memory", "out-of-memory")
#: Common windows: a screen, half a screen, a phone.
WINDOWS = {1400: 900, 1024: 900, 390: 844}
#: Higher screenshots are hard to view.
HEIGHT = 16_000
OUT = ROOT / "docs" / "_build" / "screenshots"


def main() -> None:
    """Take all screenshots."""
    OUT.mkdir(parents=True, exist_ok=True)
    folders = {theme: build_once(theme, OUT / "html") for theme in SCHEMES}
    with launched() as browser:
        for theme, schemes in SCHEMES.items():
            with served(folders[theme], {}) as address:
                for scheme in schemes:
                    for width, height in WINDOWS.items():
                        take(browser, address, f"{theme}-{scheme}", width, height)
    print(f"The pictures are in {OUT.relative_to(ROOT)}")


def take(browser: Browser, address: str, look: str, width: int, height: int) -> None:
    """Take each page in one window; in the largest, print it too."""
    window = {"width": width, "height": height}
    context = browser.new_context(viewport=window, color_scheme=look.rpartition("-")[2])
    page = context.new_page()
    for title in PAGES:
        path = f"{look}-{width}-{title}"
        page.goto(f"{address}/{title}.html")
        page.wait_for_load_state("networkidle")
        page.screenshot(path=OUT / f"{path}-first.png")
        whole = min(page.evaluate("document.documentElement.scrollHeight"), HEIGHT)
        page.set_viewport_size({"width": width, "height": whole})
        page.screenshot(path=OUT / f"{path}-whole.png")
        page.set_viewport_size(window)
        if width == max(WINDOWS):
            page.pdf(path=OUT / f"{path}.pdf", format="A4")
    page.goto(f"{address}/{PAGES[0]}.html?size=7B")
    page.locator(".verl-details[id]:visible").first.evaluate("(block) => { block.open = true; }")
    page.screenshot(path=OUT / f"{look}-{width}-{PAGES[0]}-filtered.png")
    context.close()


if __name__ == "__main__":
    main()
