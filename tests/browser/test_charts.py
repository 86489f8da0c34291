"""Charts on a phone and on a wide screen: legible words that do not overlap, and bars with room."""

from __future__ import annotations

import pytest

#: The widest and the narrowest column of text; furo wraps tables.
THEMES = ("sphinx_rtd_theme", "furo")
PAGE = """
.. verl-memory::
   :model: Qwen/Qwen2.5-7B
   :gpus: 8*H100
   :show: chart

   algorithm.adv_estimator: gae
   actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu: 32
   critic.ppo_micro_batch_size_per_gpu: 32

.. verl-memory:: 8B
   :show: chart

.. verl-runs:: 0.5B
   :details:
"""
#: Of each chart: the sizes of its words and the widths of its bars in pixels, and how many words are beyond its edges or
#: not beside their bar.
MEASURES = """() => [...document.querySelectorAll('.verl-chart > div')].filter(chart => chart.offsetWidth).map(chart => {
    const box = (each) => each.getBoundingClientRect(), edge = box(chart);
    const words = [...chart.querySelectorAll('span, strong, text')].filter(each => !each.children.length);
    const bars = [...chart.children].filter((_, index) => index % 3 == 1 && index < chart.children.length - 1);
    const isWrong = (bar) => {
        const label = box(bar.previousElementSibling), own = box(bar), value = box(bar.nextElementSibling);
        return label.left < edge.left - 1 || label.right > own.left || own.right > value.left
            || value.right > edge.right + 1 || own.top < label.top - 8 || own.bottom > label.bottom + 8;
    };
    const sizes = words.map(word => parseFloat(getComputedStyle(word).fontSize));
    return [sizes, bars.map(bar => box(bar).width), bars.filter(isWrong).length];
})"""


@pytest.mark.parametrize("theme", THEMES)
def test_label_bar_and_value_are_legible_on_one_line(project, site, needs, theme):
    needs(theme)
    project.conf["html_theme"] = theme
    opened = site(project.page(PAGE).build().out)
    for width, direction in ((390, "ltr"), (390, "rtl"), (1400, "ltr")):
        page = opened.open(viewport={"width": width, "height": 900})
        page.evaluate(f"document.documentElement.dir = '{direction}'")
        page.evaluate("document.querySelectorAll('details').forEach(item => { item.open = true })")
        result = page.evaluate(MEASURES)
        assert len(result) > 4
        for sizes, bars, wrong in result:
            assert 12 <= min(sizes) <= max(sizes) <= 16
            assert min(bars) >= 80
            assert wrong == 0
