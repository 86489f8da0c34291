"""Requirements for charts and marks: bars that end at the totals, lightness, escaped text, no style attribute."""

from __future__ import annotations

import re
from itertools import combinations, pairwise

import pytest
from bs4 import BeautifulSoup
from themes import ROOT

from sphinx_verl_resources.analysis import Line
from sphinx_verl_resources.charts import Drawing, waterfall
from sphinx_verl_resources.fit.bars import phase_bars_text, phase_chart
from sphinx_verl_resources.memory.estimate import estimate
from sphinx_verl_resources.memory.recorded import request_of_run
from sphinx_verl_resources.memory.registries import EstimatorContext
from sphinx_verl_resources.memory.request import VERDICTS, Request
from sphinx_verl_resources.units import Breakdown, Category, Component, Factor

FACTS = EstimatorContext()
STYLE = (ROOT / "sphinx_verl_resources/static/verl-resources.css").read_text("utf-8")
NASTY = "<b>&\"'</div>"
CONFIG = {"algorithm.adv_estimator": "gae", "actor_rollout_ref.actor.use_kl_loss": True}


def luminance(colour: str) -> float:
    """Return the luminance by WCAG, which is what remains of a colour for those who see none."""
    parts = [int(colour[index : index + 2], 16) / 255 for index in (1, 3, 5)]
    linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(one: str, other: str) -> float:
    low, high = sorted((luminance(one), luminance(other)))
    return (high + 0.05) / (low + 0.05)


def share(text: str) -> float:
    return float(text.removesuffix("%"))


def check(drawing: Drawing) -> BeautifulSoup:
    """Check the requirements for every chart."""
    html = drawing.node("verl-chart-" + 40 * "x").astext()
    assert len(html.encode()) <= 10_000
    result = BeautifulSoup(html, "html.parser")
    assert result.div["role"] == "figure"
    for element in result.find_all(True):
        assert element.name not in {"style", "script"}
        assert {"style", "onload"}.isdisjoint(element.attrs)
    for rect in result.find_all("rect"):
        assert 0 <= share(rect["x"]) <= share(rect["x"]) + share(rect["width"]) <= 100.02
    assert {svg["aria-hidden"] for svg in result.find_all("svg")} == {"true"}  # the words are text
    for text in result.find_all("text"):
        assert contrast("#" + 2 * text["fill"][1:], text.find_previous("rect")["fill"]) >= 4.5
    return result


def test_every_run_has_a_chart_whose_pieces_differ_in_lightness_and_letter():
    assert len({category.letter for category in Category}) == len(Category)
    for run in FACTS.runs.values():
        if run.settings:
            result = estimate(request_of_run(run, FACTS), FACTS)
            chart = phase_chart(result, run.short_name)
            check(chart)
            for bar in chart.bars:
                large = [each for each in bar.pieces if each.end - each.start > 0.01 * result.peak]
                for one, other in pairwise(each for each in large if each.letter):
                    assert contrast(one.paint, other.paint) > 1.15, (one, other)


@pytest.fixture(scope="module")
def critic():
    return estimate(Request("Qwen/Qwen2.5-32B-Instruct", CONFIG, 8, "H100"), FACTS)


def test_label_bar_and_value_follow_each_other_and_bars_end_at_the_totals(critic):
    result = check(phase_chart(critic, "x"))
    cells = result.div.find_all(recursive=False)[:-1]
    limit = pytest.approx(100 * critic.capacity / critic.high, abs=0.05)
    for phase, label, bar, value in zip(critic.phases, cells[::3], cells[1::3], cells[2::3], strict=True):
        is_peak = phase is critic.peak_phase
        assert label.get_text() == (f"{phase.label} (peak)" if is_peak else phase.label)
        assert label.name == ("strong" if is_peak else "span")
        assert value.get_text() == f"{phase.total / 2**30:,.0f} GiB"
        last = bar.select("rect[fill]")[-1]
        end = share(last["x"]) + share(last["width"])
        assert end == pytest.approx(100 * phase.total / critic.high, abs=0.05)
        assert share(bar.select_one(".verl-limit")["x"]) == limit
        assert bool(bar.select(".verl-range")) == is_peak
    ends = f"{critic.low / 2**30:.0f} to {critic.high / 2**30:.0f} GiB"
    assert f"Range of the peak: {ends}" in result.get_text()
    assert "GPU capacity: 79 GiB" in result.get_text()


def test_without_a_capacity_there_is_no_line():
    result = estimate(Request("Qwen/Qwen2.5-7B", CONFIG, 8), FACTS)
    assert not check(phase_chart(result, "x")).select(".verl-limit")
    assert "|" not in phase_bars_text(result, 80)


@pytest.mark.parametrize("width", [60, 80, 120])
def test_bars_in_a_terminal_have_the_same_ends(critic, width):
    lines = phase_bars_text(critic, width).splitlines()
    assert max(map(len, lines)) <= width
    names = [f"{critic.peak_phase.label} (peak)", *(phase.label for phase in critic.phases)]
    labels = 1 + max(map(len, names))
    room = width - labels - 12
    for phase, line in zip(critic.phases, lines, strict=False):
        bar, value = line[labels:-11], line[-11:].strip()
        limit = bar[round(critic.capacity / critic.high * room)]
        assert (value, limit) == (f"{phase.total / 2**30:,.0f} GiB", "|")
        inside = bar.replace("|", "W" if phase.total > critic.capacity else " ").rstrip(" -")
        assert len(inside) == pytest.approx(phase.total / critic.high * room, abs=1)
        assert ("-" in bar) == (phase is critic.peak_phase)


def test_the_waterfall_is_drawn_the_same_way_and_escaped(critic):
    part = Component("x", "x", Category.WEIGHTS, (Factor("bytes", 1e9),), "assumed")
    lines = [
        Line("total", label, 1e9, Breakdown((part,)), parts) for label, parts in (("a", (part,)), (NASTY, ()))
    ]
    result = check(waterfall(lines, NASTY))
    assert [rect["fill"] for rect in result.find_all("rect")] == [Category.WEIGHTS.colour, "#808080"]
    assert [value.get_text() for value in result.select("svg + *")] == ["1.0 GB", "1.0 GB"]
    assert result.strong.get_text() == result.div["aria-label"] == NASTY
    assert check(phase_chart(critic, NASTY)).div["aria-label"] == NASTY


def declared(verdict: str, name: str) -> str:
    """Return the last value of a property in the rules for the mark of a verdict."""
    rules = " ".join(re.findall(rf"verl-verdict-{verdict}\b[^{{}}]*\{{([^{{}}]*)\}}", STYLE))
    return ["", *re.findall(rf"(?<![\w-]){name}: ([^;]+);", rules)][-1]


def test_marks_differ_in_lightness_and_have_a_sign_and_a_word():
    inks = {verdict: declared(verdict, "color") for verdict in VERDICTS}
    fills = {verdict: declared(verdict, "background-color") for verdict in VERDICTS if inks[verdict]}
    assert set(VERDICTS) - set(fills) == {"unknown"}
    assert len(set(fills.values())) == 3  # "depends on the lengths" and "borderline" both: it may fit
    assert min(contrast(*pair) for pair in combinations(set(fills.values()), 2)) >= 3
    assert min(contrast(fill, inks[verdict]) for verdict, fill in fills.items()) >= 4.5
    signs = {declared(verdict, "content") for verdict in VERDICTS}  # no screen reader reads them
    assert len([sign for sign in signs if re.fullmatch(r'".+" / ""', sign)]) == len(VERDICTS)
