"""Accessibility of our content in every theme and colour scheme: axe-core's findings, and narrow windows."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from themes import SCHEMES

AXE = Path(__file__).parent / "vendor" / "axe-core" / "axe.min.js"
#: WCAG 2.0 to 2.2, levels A and AA.
TAGS = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa"]
LOOKS = [(theme, scheme) for theme, schemes in SCHEMES.items() for scheme in schemes]
#: Rules that the frame of a theme breaks: its navigation, search and footer, which this project cannot fix.
#: Remove a rule from here when the theme follows it.
FRAMES = {
    "sphinx_rtd_theme": {"aria-required-attr", "color-contrast", "link-in-text-block", "target-size"},
    "furo": {"aria-required-attr", "landmark-unique"},
    "pydata_sphinx_theme": {"label-content-name-mismatch"},
    "alabaster": {"aria-required-attr", "color-contrast", "target-size"},
}
#: The theme of this documentation. Pages without our content are tested only in this theme.
OWN = "sphinx_rtd_theme"
#: Selector of the extension's own content.
OURS = re.compile(r'class="(?:[^"]* )?verl-(?!docs-)')
#: The page on which the frame is tested too, because it is the same on all pages.
WHOLE = "hardware.html"
#: The same page, filtered and sorted by an address with an unknown part.
FILTERED = "hardware.html?size=7B&sort=-gpus&train=nonsense"
#: The rules about colours, the only ones affected by a second colour scheme.
COLOURS = {"color-contrast", "link-in-text-block"}
#: Except in our own theme, only this many rows of a table and blocks of a page are tested.
FEW = 3
#: Returns pairs of a rule and the elements that break it, first for the content, then for the frame.
RUN = """
async ([runOnly, isWhole, most]) => {
  document.querySelectorAll(".verl-filter .verl-unfold-all").forEach(button => { button.click(); });
  document.querySelectorAll(`tbody > tr:nth-child(n + ${most + 1})`).forEach(row => { row.remove(); });
  [...document.querySelectorAll("details")].slice(most).forEach(block => { block.remove(); });
  document.querySelectorAll("details").forEach(block => { block.open = true; });
  const place = isWhole ? document : document.querySelector("[role=main], main");
  // Good practice only, and so without one of the tags: regions have names of their own.
  const rules = {"landmark-unique": {enabled: true}};
  const found = await axe.run(place, {runOnly, rules, resultTypes: ["violations"]});
  const inFrame = node => {
    const element = document.querySelector(node.target[0]);
    return element && element !== document.documentElement && !element.closest("[role=main], main");
  };
  const content = [], frame = [];
  for (const rule of found.violations) {
    for (const node of rule.nodes) {
      (inFrame(node) ? frame : content).push([rule.id, node.target.join(" "), node.failureSummary]);
    }
  }
  return [content, frame];
}
"""
#: The marks at the start of a line.
ALONE = """
(marks) => {
  const before = document.createRange();
  return marks.filter((mark) => mark.checkVisibility()).filter((mark) => {
    before.selectNodeContents(mark.closest("p"));
    before.setEndBefore(mark);
    return [...before.getClientRects()].at(-1).right > mark.getBoundingClientRect().right;
  }).map((mark) => mark.closest("td").textContent);
}
"""


@pytest.mark.parametrize(("theme", "scheme"), LOOKS)
def test_axe(documentation, site, theme, scheme):
    """No page with our content breaks a rule; rows and details are unfolded, so that nothing is hidden."""
    folder = documentation(theme)
    opened = site(folder)
    page = opened.open(color_scheme=scheme, viewport={"width": 1200, "height": 900})
    first = scheme == SCHEMES[theme][0]
    only = {"type": "tag", "values": TAGS} if first else {"type": "rule", "values": sorted(COLOURS)}
    most = 10_000 if theme == OWN else FEW
    content, frame = [], set()
    script = AXE.read_text("utf-8")
    names = sorted(path.name for path in folder.glob("*.html"))
    assert len(names) > 15
    ours = [name for name in names if OURS.search((folder / name).read_text("utf-8"))]
    assert len(ours) >= 5
    assert WHOLE in ours
    for name in [*(names if theme == OWN else ours), FILTERED]:
        page.goto(f"{opened.address}/{name}")
        page.evaluate(script)
        here, around = page.evaluate(RUN, [only, name == WHOLE, most])
        content += [(name, *found) for found in here]
        frame |= {found[0] for found in around}
    assert content == []
    assert frame == (FRAMES[theme] if first else FRAMES[theme] & COLOURS)


@pytest.mark.parametrize("theme", SCHEMES)
def test_narrow(documentation, site, theme):
    """At 360 pixels, and so at 400 % zoom, a page scrolls only vertically; tables scroll in their own region.

    From 1024 pixels on, every column of a table of runs is in view, and a mark is on the line of its word.
    """
    folder = documentation(theme)
    opened = site(folder)
    page = opened.open(viewport={"width": 360, "height": 800})
    wide = {}
    for name in (
        "hardware.html",
        "estimator.html",
        "memory.html",
        "registries.html",
        "contributing-a-run.html",
    ):
        page.goto(f"{opened.address}/{name}")
        page.evaluate("document.querySelectorAll('details').forEach(block => { block.open = true; })")
        width = page.evaluate("document.documentElement.scrollWidth")
        if width > 360:
            wide[name] = width
    assert wide == {}
    for width in (1024, 1400):
        page.set_viewport_size({"width": width, "height": 800})
        page.goto(f"{opened.address}/hardware.html")
        page.locator(".verl-unfold-all").click()
        room = "(tables) => tables.map((table) => table.closest('.verl-scroll')).map((box) => box.scrollWidth - box.clientWidth)"
        assert max(page.locator("table.verl-runs").evaluate_all(room)) == 0
        assert page.locator("table.verl-runs .verl-mark").evaluate_all(ALONE) == []
