"""Filters, orders and sections."""

from __future__ import annotations

import pytest

from sphinx_verl_resources.records import PAGE_SIZES, SIZES
from sphinx_verl_resources.selection import RunSelection, select_runs, sizes_to_show


def ids(data, **query):
    return [run.id for run in select_runs(data.load(), RunSelection(**query))]


def test_page_order_is_what_ran_first_then_by_date(data):
    data.run("z", added="2025-01-01")
    data.run("y", added="2025-02-01")
    data.run("x")
    data.run("w", kind="stated", added="2024-01-01")
    data.run("v", kind="measured", added="2024-06-01")
    published = [{"kind": "log", "url": "https://example.org/log"}]
    data.run("u", kind="measured", added="2025-01-15", evidence=published)
    assert ids(data) == ["z", "u", "y", "x", "v", "w"]
    assert ids(data, filters=(("kind", ("ran",)),)) == ["z", "u", "y", "x"]
    assert ids(data, filters=(("kind", ("measured",)),)) == ["u", "v"]


def test_numbers_sort_as_numbers_and_nothing_comes_last(data):
    data.run("a", gpus={"count": 16, "type": "H100"}, max_batch=9)
    data.run("b", gpus={"count": 2, "type": "H800"}, max_batch=10)
    data.run("c", gpus={"count": 2, "type": "H100"})
    assert ids(data, sort=(("gpus", False),)) == ["c", "b", "a"]
    assert ids(data, sort=(("gpus", True),)) == ["a", "b", "c"]
    assert ids(data, sort=(("max_batch", False),)) == ["a", "b", "c"]
    assert ids(data, sort=(("max_batch", True),)) == ["b", "a", "c"]
    assert ids(data, sort=(("gpus.count", False), ("id", True))) == ["c", "b", "a"]


def test_settings_that_are_words_in_one_run_and_numbers_in_another_sort(data):
    for name, value in {"a": "auto", "b": 10, "c": 9, "d": True}.items():
        data.run(name, settings={"data.x": value})
    assert ids(data, sort=(("settings.data.x", False),)) == ["c", "b", "a", "d"]


@pytest.mark.parametrize(
    ("filters", "expected"),
    [
        ({"tag": ["min"]}, ["a", "b"]),
        ({"task": ["grpo lora"]}, ["b"]),
        ({"gpu": ["NVIDIA H800"]}, ["c"]),
        ({"gpu": ["h100-80gb", "h800"]}, ["a", "b", "c"]),
        ({"infer": ["vllm"]}, ["a", "b"]),
        ({"infer": ["sglang0.4.6"]}, ["c"]),
        ({"model": ["Qwen2.5-7B-Instruct"]}, ["a", "b", "c"]),
        ({"tag": ["MIN"], "task": ["GRPO"]}, ["a"]),
        ({"kind": ["stated"]}, []),
    ],
)
def test_filters(data, filters, expected):
    data.run("a")
    data.run("b", task="GRPO-LoRA")
    data.run(
        "c",
        tag="RECOMMENDED",
        gpus={"count": 4, "type": "H800"},
        infer={"engine": "sglang", "version": "0.4.6"},
    )
    assert ids(data, filters=tuple((name, tuple(values)) for name, values in filters.items())) == expected


def test_sections_are_those_of_the_page_and_every_other_with_a_run(data):
    data.run("a", size="235B")
    runs = select_runs(data.load(), RunSelection())
    assert sizes_to_show([], RunSelection()) == list(PAGE_SIZES)
    assert sizes_to_show(runs, RunSelection()) == [
        size for size in SIZES if size in PAGE_SIZES or size == "235B"
    ]
    assert sizes_to_show(runs, RunSelection(sizes=("70B", "3B"))) == ["70B", "3B"]


def test_sizes_ascend():
    for sizes in (SIZES, PAGE_SIZES):
        assert sorted(sizes, key=lambda size: float(size[:-1])) == list(sizes)
