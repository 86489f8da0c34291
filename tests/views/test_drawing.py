"""Requirements for every chart: contrast, size, escaped text, nothing beyond its edges."""

from __future__ import annotations

import re

import pytest
from bs4 import BeautifulSoup

from sphinx_verl_resources.analysis import Line
from sphinx_verl_resources.charts import WIDTH, Drawing, waterfall
from sphinx_verl_resources.memory.estimate import estimate
from sphinx_verl_resources.memory.recorded import request_of_run
from sphinx_verl_resources.memory.registries import EstimatorContext
from sphinx_verl_resources.memory.request import Request
from sphinx_verl_resources.records import Measured
from sphinx_verl_resources.units import GIB, Breakdown, Category, Component, Factor
from sphinx_verl_resources.views.charts import (
    LETTERS,
    axis,
    clip,
    phase_chart,
    ticks,
    upright,
    width_of,
    wrap,
)

FACTS = EstimatorContext()
NASTY = "<b>&\"'</title>"
#: White, the table stripes of sphinx_rtd_theme, and the dark pages of furo and pydata.
PAGES = ("#ffffff", "#f3f6f6", "#131416", "#14181e")
CONFIG = {"algorithm.adv_estimator": "gae", "actor_rollout_ref.actor.use_kl_loss": True}
#: Maximum bytes of a chart.
MOST = 6000


def luminance(colour: str) -> float:
    parts = [int(colour[index : index + 2], 16) / 255 for index in (1, 3, 5)]
    linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(one: str, other: str) -> float:
    low, high = sorted((luminance(one), luminance(other)))
    return (high + 0.05) / (low + 0.05)


@pytest.mark.parametrize("category", Category)
def test_colours_are_seen_on_every_page_and_letters_on_them(category):
    _letter, ink = LETTERS[category]
    assert {page: contrast(category.colour, page) >= 3 for page in PAGES} == dict.fromkeys(PAGES, True)
    assert contrast(category.colour, "#" + 2 * ink[1:]) >= 4.5


def soup(chart) -> BeautifulSoup:
    return BeautifulSoup(chart.node("x").astext(), "html.parser")


def check(chart) -> BeautifulSoup:
    """Check the requirements for every chart."""
    assert len(chart.node("verl-chart-" + 40 * "x").astext().encode()) <= MOST
    found = soup(chart)
    for element in found.find_all(True):
        assert element.name not in {"style", "script"}
        for name, value in element.attrs.items():
            assert name not in {"style", "onload"}
            assert not re.search(r"\d\.\d\d|px|nan|inf", str(value)) or name == "stroke-opacity", value
    assert [element.name for element in found.find_all(id=True)][:2] == ["title", "desc"]
    assert found.svg["aria-labelledby"] == "x--title x--desc"
    assert found.svg["role"] == "img"
    assert {"width", "height"}.isdisjoint(found.svg.attrs)
    return found


def test_drawings_are_small_for_every_run():
    drawn = 0
    for run in EstimatorContext().runs.values():
        if run.settings:
            request = request_of_run(run, FACTS)
            check(phase_chart(estimate(request, FACTS), run.short_name, run.measured))
            drawn += 1
    assert drawn > 40


@pytest.fixture(scope="module")
def critic():
    return estimate(Request("Qwen/Qwen2.5-32B-Instruct", CONFIG, 8, "H100"), FACTS)


def lengths(element) -> list[tuple[int, int]]:
    """Return the starts and lengths of the bars in a path."""
    return [(int(x), int(long)) for x, long in re.findall(r"M(\d+) [\d.]+h(\d+)", element["d"])]


def test_bars_end_at_the_totals(critic):
    found = check(phase_chart(critic, "x", None))
    top = ticks(critic.high / GIB)[-1] * GIB
    bars = [path for path in found.select(':not(g) > path[stroke-width="16"]') if "url" not in path["stroke"]]
    ends: dict[str, int] = {}
    for path in bars:
        for y, (x, long) in zip(re.findall(r"M\d+ ([\d.]+)h", path["d"]), lengths(path), strict=True):
            ends[y] = max(ends.get(y, 0), x + long)
    assert list(
        dict(sorted(ends.items(), key=lambda item: float(item[0]))[: len(critic.phases)]).values()
    ) == [round(phase.total * WIDTH / top) for phase in critic.phases]
    for phase in critic.phases:
        assert sum(phase.sizes.values()) == pytest.approx(phase.total)


def test_every_category_has_its_colour_and_letter():
    assert set(LETTERS) == set(Category)
    letters, colours = {letter for letter, _ in LETTERS.values()}, {category.colour for category in Category}
    assert len(colours) == len(letters) == len(Category)


def test_what_does_not_fit_is_hatched_and_says_by_how_much(critic):
    found = check(phase_chart(critic, "x", None))
    over = [phase.total - critic.capacity for phase in critic.phases if phase.total > critic.capacity]
    texts = [item.get_text() for item in found.select("text")]
    assert f"Over capacity, by up to {max(over) / GIB:.1f} GiB" in texts
    hatched, sign = found.select('path[stroke="url(#x--over)"]')
    assert len(lengths(hatched)) == len(over) > 0
    assert lengths(sign) == [(int(lengths(sign)[0][0]), 16)]
    assert found.select_one("pattern#x--over")
    assert texts.count(f"GPU capacity: {critic.capacity / GIB:.1f} GiB") == 1


def test_without_a_capacity_there_is_no_line():
    found = estimate(Request("Qwen/Qwen2.5-7B", CONFIG, 8), FACTS)
    assert found.capacity is None
    assert "GPU capacity" not in check(phase_chart(found, "x", None)).get_text()


@pytest.mark.parametrize(
    ("counter", "words"),
    [("device", "in use on the GPU"), ("torch-max-allocated", "PyTorch only"), ("not-stated", "not stated")],
)
def test_a_measured_value_says_what_it_counts(critic, counter, words):
    found = check(phase_chart(critic, "x", Measured(gib=60.0, counter=counter)))
    (label,) = [item for item in found.select("text") if item.get_text().startswith("Measured")]
    assert words in label.get_text()
    assert "60.0 GiB" in [item.get_text() for item in found.select("g text")]
    assert f"M0 {int(label['y']) + 13}H" in str(found)
    assert "Measured" not in check(phase_chart(critic, "x", Measured(host_ram_gib=98))).get_text()


def total(label: str) -> Line:
    """Return a sum of 1 GB."""
    part = Component("x", "x", Category.WEIGHTS, (Factor("bytes", 1e9),), "assumed")
    return Line("total", label, 0, Breakdown((part,)))


def test_texts_are_escaped(critic):
    for chart in (phase_chart(critic, NASTY, None), waterfall([total(NASTY)], NASTY)):
        found = check(chart)
        assert found.title.get_text() == NASTY
        assert not found.select("b")
    assert found.select_one("text").get_text() == NASTY


@pytest.mark.parametrize("name", ["x" * 200, "i l " * 50, "ab_cd." * 30])
def test_long_names_are_cut_and_told_in_full(name):
    found = check(waterfall([total(name), total("x")], name))
    label, value, _label, _value = (item.get_text() for item in found.select("svg > text"))
    assert label.endswith("…")
    assert len(label) == 24
    assert width_of(label) + width_of(value) <= WIDTH
    assert name in found.desc.get_text()


def test_label_bar_and_value_are_on_one_line():
    part = total("x").now.components[0]
    lines = [Line("a", "a", 1e9, total("x").now, (part,)), total("b")]
    found = check(waterfall(lines, "x"))
    bars, texts = found.select("rect"), found.select("svg > text")
    for bar, label, value in zip(bars, texts[::2], texts[1::2], strict=True):
        assert label["y"] == value["y"]
        assert int(bar["y"]) < int(label["y"]) < int(bar["y"]) + int(bar["height"])
    assert int(bars[0]["y"]) + int(bars[0]["height"]) < int(bars[1]["y"])
    assert [bar["fill"] for bar in bars if "fill" in bar.attrs] == [Category.WEIGHTS.colour]
    assert bars[0]["width"] == bars[1]["width"]
    assert [value.get_text() for value in texts[1::2]] == ["1.0 GB", "1.0 GB"]


@pytest.mark.parametrize("name", ["W" * 200, "x" * 200, "权" * 200, "i l " * 50, "ab_cd." * 30])
def test_long_names_stay_inside(name):
    assert width_of(clip(name, 300)) <= 300
    assert all(width_of(line) <= WIDTH for line in wrap(name, 0))


def test_names_that_fit_are_in_one_line():
    assert len(wrap("Critic update: backward (peak)", width_of("1,169.1 GiB"))) == 1


@pytest.mark.parametrize("x", [0, 240, WIDTH])
def test_a_mark_at_an_edge_is_whole(x):
    found = re.match(r"<path .* d=\"M([\d.]+) ", upright(x, [0]))
    assert 1.5 <= float(found[1]) <= WIDTH - 1.5


@pytest.mark.parametrize("most", [1e-3, 0.07, 1, 3.3, 79.2, 100, 1234.5, 9.9e6])
def test_ticks_are_round_and_few(most):
    found = ticks(most)
    assert found[0] == 0
    assert found[-2] < most <= found[-1] * (1 + 1e-9)
    assert 2 <= len(found) <= 6
    assert max(len(f"{mark:.9f}".replace(".", "").strip("0")) for mark in found) <= 3
    assert axis(0, found, "GiB").count("<text") == len(found)


def test_a_drawing_without_parts_is_one():
    assert check(Drawing("x", "y", 10.04, ())).svg["viewbox"] == "0 0 360 10"
