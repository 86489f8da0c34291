"""The marks of verdicts differ in lightness, also as seen with the common kinds of colour blindness."""

from __future__ import annotations

import re
from itertools import combinations

import pytest
from themes import ROOT

from sphinx_verl_resources.memory.request import VERDICTS
from sphinx_verl_resources.views.verdicts import MARK_CLASS, mark

STYLE = (ROOT / "sphinx_verl_resources/static/verl-resources.css").read_text("utf-8")
#: Matrices for linear red, green and blue: Machado, Oliveira and Fernandes 2009, severity 1.
SIGHTS = {
    "usual": ((1.0, 0.0, 0.0), (0.0, 1.0, 0.0), (0.0, 0.0, 1.0)),
    "protanopia": (
        (0.152286, 1.052583, -0.204868),
        (0.114503, 0.786281, 0.099216),
        (-0.003882, -0.048116, 1.051998),
    ),
    "deuteranopia": (
        (0.367322, 0.860646, -0.227968),
        (0.280085, 0.672501, 0.047413),
        (-0.011820, 0.042940, 0.968881),
    ),
}
#: Pages and stripes of sphinx_rtd_theme, alabaster, furo and pydata_sphinx_theme, light and dark.
PAGES = ("#fcfcfc", "#f3f6f6", "#ffffff", "#131416", "#14181e")
FILLED = [verdict for verdict in VERDICTS if verdict != "unknown"]


def declared(selector: str, name: str) -> str:
    """Return the value of a property in the rules for a selector; empty if there is none."""
    found = ""
    for rule in re.finditer(r"([^{}]+)\{([^{}]*)\}", re.sub(r"/\*.*?\*/", "", STYLE, flags=re.DOTALL)):
        if selector in (each.strip() for each in rule[1].split(",")):
            values = dict(line.strip().split(": ", 1) for line in rule[2].split(";") if line.strip())
            found = values.get(name, found)
    return found


def of(verdict: str, name: str) -> str:
    return declared(f".{MARK_CLASS}-{verdict}", name)


def luminance(colour: str, sight: str) -> float:
    """Return the luminance by WCAG of a colour as seen with a kind of colour blindness."""
    shares = [int(colour[start : start + 2], 16) / 255 for start in (1, 3, 5)]
    linear = [share / 12.92 if share <= 0.04045 else ((share + 0.055) / 1.055) ** 2.4 for share in shares]
    seen = [sum(map(float.__mul__, row, linear)) for row in SIGHTS[sight]]
    red, green, blue = (min(1.0, max(0.0, part)) for part in seen)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def contrast(one: str, other: str, sight: str) -> float:
    low, high = sorted(luminance(each, sight) for each in (one, other))
    return (high + 0.05) / (low + 0.05)


@pytest.mark.parametrize("sight", SIGHTS)
def test_the_marks_differ_in_lightness(sight: str) -> None:
    fills = dict.fromkeys(of(verdict, "background-color") for verdict in FILLED)
    assert len(fills) == 3  # "depends on the lengths" and "borderline" both mean that it may fit
    for one, other in combinations(fills, 2):
        assert contrast(one, other, sight) >= 3, (one, other)
    for verdict in FILLED:
        assert contrast(of(verdict, "background-color"), of(verdict, "color"), sight) >= 4.5, verdict
    edge = declared(f".{MARK_CLASS}", "border").split()[-1]
    assert {page: contrast(edge, page, sight) >= 3 for page in PAGES} == dict.fromkeys(PAGES, True)


def test_an_unknown_verdict_has_no_fill_and_a_dashed_edge() -> None:
    assert (of("unknown", "background-color"), of("unknown", "color")) == ("", "")
    assert of("unknown", "border-style") == "dashed"


def test_each_mark_has_a_sign_that_no_screen_reader_reads_and_a_word() -> None:
    signs = [declared(f".{MARK_CLASS}-{verdict}::before", "content") for verdict in VERDICTS]
    assert len(set(signs)) == len(VERDICTS)
    assert all(re.fullmatch(r'".+" / ""', sign) for sign in signs), signs
    for verdict in VERDICTS:
        assert mark(verdict)["classes"] == [MARK_CLASS, f"{MARK_CLASS}-{verdict}"]
    words = [mark(verdict).astext() for verdict in VERDICTS]
    assert words == ["fits", "borderline", "depends on the lengths", "does not fit", "unknown"]
    assert mark("does-not-fit", "no").astext() == "no"
