"""Fields by name, filters and orders."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sphinx_verl_resources.catalog.fields import (
    every_field,
    field_named,
    find_field,
    natural,
)
from sphinx_verl_resources.catalog.names import PAGE_COLUMNS, PAGE_SIZES, SIZES
from sphinx_verl_resources.catalog.selection import RunQuery, select_runs, sizes_to_show
from sphinx_verl_resources.diagnostics import NoAnswerError


def ids(data, **query):
    return [run.id for run in select_runs(data.load(), RunQuery(**query))]


def test_page_order_is_tested_first_then_by_date(data):
    data.run("z", added="2025-01-01")
    data.run("y", added="2025-02-01")
    data.run("x")
    data.run("w", kind="stated", added="2024-01-01")
    data.run("v", kind="measured", added="2024-06-01")
    assert ids(data) == ["z", "y", "x", "v", "w"]


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
    runs = select_runs(data.load(), RunQuery())
    assert sizes_to_show([], RunQuery()) == list(PAGE_SIZES)
    assert sizes_to_show(runs, RunQuery()) == [size for size in SIZES if size in PAGE_SIZES or size == "235B"]
    assert sizes_to_show(runs, RunQuery(sizes=("70B", "3B"))) == ["70B", "3B"]


def test_sizes_ascend():
    for sizes in (SIZES, PAGE_SIZES):
        assert sorted(sizes, key=lambda size: float(size[:-1])) == list(sizes)


def test_every_named_field_has_a_text(data):
    data.run("a")
    run = data.load().runs["a"]
    assert {name: every_field()[name].text(run) for name in PAGE_COLUMNS} == {
        "tag": "MIN", "model": "Qwen2.5-7B-Instruct", "task": "GRPO", "gpus": "2*H100", "max_batch": "",
        "train": "fsdp", "infer": "vllm0.8.3", "script": "not recorded", "contributor": "not recorded",
    }  # fmt: skip
    for field in every_field().values():
        assert isinstance(field.text(run), str)


def test_fields_go_by_name_and_by_heading():
    assert [find_field(word).name for word in ("Resource", "MaxBatch", "link", "max-batch", "measured.gib")] == [
        "gpus", "max_batch", "script", "max_batch", "measured.gib",
    ]  # fmt: skip
    assert field_named("settings.data.train_batch_size").heading == "data.train_batch_size"
    with pytest.raises(NoAnswerError, match="did you mean 'model'"):
        find_field("modle")


@given(st.lists(st.text("a1.9*0 Z", max_size=8), min_size=3, max_size=3))
def test_natural_keys_always_compare(texts):
    low, middle, high = sorted(texts, key=natural)
    assert natural(low) <= natural(middle) <= natural(high)
    assert natural(low) <= natural(high)


@given(st.integers(0, 10**12), st.integers(0, 10**12))
def test_natural_order_of_counts(one, other):
    assert (natural(f"{one}*H100") < natural(f"{other}*H100")) == (one < other)
