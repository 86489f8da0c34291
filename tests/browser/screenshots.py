"""Pictures of the pages that people look at, to be looked at: ``make screenshots``.

Writes ``docs/_build/screenshots/<theme>-<scheme>-<width>-<page>.png``, and each page as it prints.
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

PAGES = ("hardware", "estimator", "memory")
WIDTHS = (360, 800, 1440)
#: Pictures that are higher are hard to look at.
HEIGHT = 16_000
OUT = ROOT / "docs" / "_build" / "screenshots"


def main() -> None:
    """Take them all."""
    OUT.mkdir(parents=True, exist_ok=True)
    folders = {theme: build_once(theme, OUT / "html") for theme in SCHEMES}
    with launched() as browser:
        for theme, schemes in SCHEMES.items():
            with served(folders[theme], {}) as address:
                for scheme in schemes:
                    for width in WIDTHS:
                        take(browser, address, f"{theme}-{scheme}-{width}", width, scheme)
    print(f"The pictures are in {OUT.relative_to(ROOT)}")


def take(browser: Browser, address: str, name: str, width: int, scheme: str) -> None:
    """Take each page at one width; at the largest, print it too."""
    context = browser.new_context(viewport={"width": width, "height": 900}, color_scheme=scheme)
    page = context.new_page()
    for title in PAGES:
        page.goto(f"{address}/{title}.html")
        page.wait_for_load_state("networkidle")
        height = min(page.evaluate("document.documentElement.scrollHeight"), HEIGHT)
        page.set_viewport_size({"width": width, "height": height})
        page.screenshot(path=OUT / f"{name}-{title}.png")
        if width == max(WIDTHS):
            page.pdf(path=OUT / f"{name}-{title}.pdf", format="A4")
        page.set_viewport_size({"width": width, "height": 900})
    context.close()


if __name__ == "__main__":
    main()
