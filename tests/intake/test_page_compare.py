"""Comparing a hand-typed page with the data: every difference is reported, in both directions."""

from __future__ import annotations

import pytest
from typed_pages import listed, page_of, read

from sphinx_verl_resources.intake.page import differences

LINK = "`a.sh <https://github.com/verl-project/verl/blob/2239fd0/examples/{}.sh>`__"
ROW = {
    "Tag": "MIN", "Model": "Qwen/Qwen2.5-7B", "Task": "GRPO", "Resource": "2*H800", "MaxBatch": "16",
    "Train": "fsdp", "Infer": "vllm0.8.2", "Link": LINK.format("a"), "Contributor": "Jane",
}  # fmt: skip


def rows(*changes, size="7B"):
    """Return the page with a row for each of these changes."""
    of_all = [{**ROW, **change}.values() for change in changes]
    return read(page_of(listed(*of_all, headings=ROW), f"{size}\n~~~~"))


def said(page, data) -> list[str]:
    found = differences(page, {row.record.id: row.record for row in data.runs}, "data")
    return [f"{problem.place.path}: {problem.named_message}" for problem in found]


def test_a_page_is_like_itself_in_any_order():
    changes = [{}, {"Tag": "RECOMMENDED"}, {"Resource": "4*H800"}, {"MaxBatch": "\\"}, {"Link": ""}]
    assert said(rows(*changes), rows(*changes[::-1])) == []


RUN = "qwen2-5-7b-grpo-2xh800"


@pytest.mark.parametrize(("change", "messages"), [
    ({"MaxBatch": "17"}, [f"page.rst: MaxBatch: the page has '17', {RUN} has '16'"]),
    ({"MaxBatch": ""}, [f"page.rst: MaxBatch: the page has 'nothing', {RUN} has '16'"]),
    ({"Tag": "RECOMMENDED", "Infer": "sglang"}, [
        f"page.rst: Tag: the page has 'RECOMMENDED', {RUN} has 'MIN'", f"page.rst: Infer: the page has 'sglang', {RUN} has 'vllm0.8.2'",
    ]),
    ({"Link": LINK.format("b").replace("a.sh", "b.sh")}, [
        "page.rst: Link: the page has 'b.sh <https://github.com/verl-project/verl/blob/2239fd0/examples/b.sh>', "
        f"{RUN} has 'a.sh <https://github.com/verl-project/verl/blob/2239fd0/examples/a.sh>'",
    ]),
    ({"Contributor": "`Jane <https://example.org/jane>`_"}, [
        f"page.rst: Contributor: the page has 'Jane <https://example.org/jane>', {RUN} has 'Jane'",
    ]),
    ({"Task": "PPO", "Resource": "8*H20", "Train": "megatron"}, [
        "page.rst: the data have no run for the row Qwen/Qwen2.5-7B, PPO on 8*H20, under 7B",
        f"data/runs/{RUN}.yaml: the page has no row for the run {RUN}, Qwen/Qwen2.5-7B, GRPO on 2*H800, under 7B",
    ]),
])  # fmt: skip
def test_differences_are_named(change, messages):
    assert said(rows(change), rows({})) == messages


def test_rows_of_another_size_are_not_the_same():
    assert len(said(rows({}, size="14B"), rows({}))) == 2


def test_the_surest_pairs_are_made_first():
    page = rows({"MaxBatch": "17"}, {"Infer": "sglang"})
    assert said(page, rows({"Infer": "sglang"}, {})) == [
        "page.rst: MaxBatch: the page has '17', qwen2-5-7b-grpo-2xh800-fsdp has '16'"
    ]
