"""Changes in words."""

from __future__ import annotations

import pytest
from docutils import nodes

from sphinx_verl_resources.answer.answer import answer_settings
from sphinx_verl_resources.answer.changes import Change
from sphinx_verl_resources.answer.question import SAVING, TASKS
from sphinx_verl_resources.answer.suggestions import FILLS_HOST, ROUNDS
from sphinx_verl_resources.memory.recorded import fitted
from sphinx_verl_resources.memory.registries import EstimatorContext
from sphinx_verl_resources.memory.request import Request
from sphinx_verl_resources.memory.versions import CURRENT
from sphinx_verl_resources.units import GIB
from sphinx_verl_resources.views.changes import change_text, changes_item, heading

DATA = EstimatorContext()
REGISTRIES = DATA


@pytest.fixture
def change():
    def made(verdict="fits", cost="none", caveats=()):
        return Change({"a": 1}, ("a=1", "+b=2"), 61.2 * GIB, 66 * GIB, verdict, cost, caveats)

    return made


@pytest.fixture
def found():
    def of(model, gpus, gpu, version=CURRENT, **more):
        request = Request(model, {**SAVING, **TASKS["GRPO"], **more}, gpus, gpu, version=version)
        return answer_settings(fitted(request, REGISTRIES), DATA)

    return of


def test_a_change_says_what_it_leaves_and_what_it_costs(change):
    assert change_text(change()) == "a=1 +b=2: 61.2 GiB (up to 66.0 GiB), costs no time."
    assert change_text(change(cost="much")).endswith("costs a lot of time.")
    assert change_text(change("does-not-fit")).endswith("costs no time: does not fit.")


def test_what_else_it_costs_comes_after(change):
    text = change_text(change(caveats=(ROUNDS, FILLS_HOST)))
    assert text.endswith(f"no time. {ROUNDS} {FILLS_HOST}")


def test_the_title_says_how_needed_they_are(change):
    assert heading([change()], likely=True) == "If it runs out of memory"
    assert heading([change()], likely=False) == "What makes it fit"
    assert heading([change("does-not-fit")], likely=False).startswith("Nothing makes it fit")


def test_where_a_run_fits_no_change_is_shown(found):
    assert changes_item(found("Qwen/Qwen2.5-0.5B", 8, "H100")) == []


def test_three_changes_at_most_and_each_caveat_once(found):
    """All three of these change the type of the weights."""
    long = found("Qwen/Qwen2.5-7B", 2, "A100-80GB", (0, 9, 0), **{"data.max_response_length": 26_000})
    (item,) = changes_item(long)
    title, *changes = (paragraph.astext() for paragraph in item.findall(nodes.paragraph))
    assert title == "If it runs out of memory:"
    assert len(changes) == 3
    assert item.astext().count(ROUNDS) == 1
    assert ROUNDS in changes[0]
    assert item.astext().count("model_dtype=bfloat16") == 3
