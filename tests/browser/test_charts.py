"""Charts on a phone and on a wide screen: text of the right size, and none beyond the edges."""

from __future__ import annotations

import pytest
from themes import SCHEMES

PAGE = """
Charts
======

.. verl-memory::
   :model: Qwen/Qwen2.5-7B
   :gpus: 8*H100
   :show: chart

   algorithm.adv_estimator: gae
   actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu: 64
   critic.ppo_micro_batch_size_per_gpu: 64

.. verl-memory:: 8B
   :show: chart

.. verl-runs:: 0.5B
   :details:
"""
#: The size of the smallest and the largest word of each chart in pixels, and the words beyond its edges.
WORDS = """() => [...document.querySelectorAll('.verl-chart svg')].map(svg => {
    const edge = svg.getBoundingClientRect(), words = [...svg.querySelectorAll('text')];
    const sizes = words.map(word => parseFloat(getComputedStyle(word).fontSize) * svg.getScreenCTM().a);
    const out = words.filter(word => {
        const box = word.getBoundingClientRect();
        return box.left < edge.left - 1 || box.right > edge.right + 1 || box.bottom > edge.bottom + 1;
    });
    return [Math.min(...sizes), Math.max(...sizes), out.map(word => word.textContent)];
})"""


@pytest.mark.parametrize("theme", SCHEMES)
def test_words_of_charts_are_legible_at_every_width(project, site, needs, theme):
    needs(theme)
    project.conf["html_theme"] = theme
    opened = site(project.page(PAGE).build().out)
    for width, direction in ((390, "ltr"), (390, "rtl"), (1400, "ltr")):
        page = opened.open(viewport={"width": width, "height": 900})
        page.evaluate(f"document.documentElement.dir = '{direction}'")
        page.evaluate("document.querySelectorAll('details').forEach(item => { item.open = true })")
        found = page.evaluate(WORDS)
        assert len(found) > 4
        assert [words for _least, _most, words in found if words] == []
        assert min(least for least, _most, _words in found) >= 12
        assert max(most for _least, most, _words in found) <= 16
