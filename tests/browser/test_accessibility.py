"""Accessibility of our content in every theme and colour scheme: axe-core's findings, and narrow windows."""

from __future__ import annotations

from pathlib import Path

import pytest
from themes import MAIN_PAGES, SCHEMES

AXE = Path(__file__).parent / "vendor" / "axe-core" / "axe.min.js"
#: WCAG 2.0 to 2.2, levels A and AA.
TAGS = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa"]
LOOKS = [(theme, scheme) for theme, schemes in SCHEMES.items() for scheme in schemes]
#: The hardware page, filtered and sorted by an address with an unknown part.
FILTERED = "hardware.html?size=7B&sort=-gpus&train=nonsense"
#: The rules about colours, the only ones affected by a second colour scheme.
COLOURS = ["color-contrast", "link-in-text-block"]
#: Only this many rows of a table and blocks of a page are tested.
FEW = 3
#: Returns pairs of a rule and the elements that break it. The frame of the theme is not tested: its navigation,
#: search and footer break rules, which this project cannot fix.
RUN = """
async ([runOnly, most]) => {
  document.querySelectorAll(".verl-filter .verl-unfold-all").forEach(button => { button.click(); });
  document.querySelectorAll(`tbody > tr:nth-child(n + ${most + 1})`).forEach(row => { row.remove(); });
  [...document.querySelectorAll("details")].slice(most).forEach(block => { block.remove(); });
  document.querySelectorAll("details").forEach(block => { block.open = true; });
  // Good practice only, and so without one of the tags: regions have names of their own.
  const options = {runOnly, rules: {"landmark-unique": {enabled: true}}, resultTypes: ["violations"]};
  const found = await axe.run(document.querySelector("[role=main], main"), options);
  return found.violations.flatMap(
    rule => rule.nodes.map(node => [rule.id, node.target.join(" "), node.failureSummary]));
}
"""


@pytest.mark.parametrize(("theme", "scheme"), LOOKS)
def test_axe(documentation, site, theme, scheme):
    """No page breaks a rule; rows and details are unfolded, so that nothing is hidden."""
    folder = documentation(theme)
    opened = site(folder)
    page = opened.open(color_scheme=scheme, viewport={"width": 1200, "height": 900})
    first = scheme == SCHEMES[theme][0]
    only = {"type": "tag", "values": TAGS} if first else {"type": "rule", "values": COLOURS}
    script = AXE.read_text("utf-8")
    names = sorted(path.name for path in folder.glob("*.html"))
    assert len(names) >= len(MAIN_PAGES)
    broken = []
    for name in [*names, FILTERED]:
        page.goto(f"{opened.address}/{name}")
        page.evaluate(script)
        broken += [(name, *result) for result in page.evaluate(RUN, [only, FEW])]
    assert broken == []


@pytest.mark.parametrize("theme", SCHEMES)
def test_narrow(documentation, site, theme):
    """At 360 pixels, and so at 400 % zoom, a page scrolls only vertically; tables scroll in their own region.

    From 1024 pixels on, every column of a table of runs is in view.
    """
    opened = site(documentation(theme))
    page = opened.open(viewport={"width": 360, "height": 800})
    widths = {}
    for name in MAIN_PAGES:
        page.goto(f"{opened.address}/{name}.html")
        page.evaluate("document.querySelectorAll('details').forEach(block => { block.open = true; })")
        widths[name] = page.evaluate("document.documentElement.scrollWidth")
    assert {name: width for name, width in widths.items() if width > 360} == {}
    for width in (1024, 1400):
        page.set_viewport_size({"width": width, "height": 800})
        page.goto(f"{opened.address}/hardware.html")
        page.locator(".verl-unfold-all").click()
        room = "(tables) => tables.map((table) => table.closest('.verl-scroll')).map((box) => box.scrollWidth - box.clientWidth)"
        assert max(page.locator("table.verl-runs").evaluate_all(room)) == 0
