"""Fields of a run: names, values, texts, orders and their other properties."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sphinx_verl_resources.diagnostics import NoAnswerError
from sphinx_verl_resources.fields import every_field, field_named, find_field, natural
from sphinx_verl_resources.records import PAGE_COLUMNS


def test_every_named_field_has_a_text(data):
    data.run("a")
    run = data.load().runs["a"]
    assert {name: every_field()[name].text(run) for name in PAGE_COLUMNS} == {
        "tag": "MIN", "model": "Qwen2.5-7B-Instruct", "task": "GRPO", "gpus": "2*H100", "max_batch": "",
        "train": "fsdp", "infer": "vllm0.8.3", "script": "", "contributor": "",
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


def test_a_field_is_in_the_model_or_derived():
    for field in every_field().values():
        assert field.schema or field.read, field.name
        assert bool(field.help) == bool(field.schema), field.name


def test_columns_of_the_spreadsheet_are_told_apart():
    columns = [field.csv for field in every_field().values() if field.csv]
    assert len(columns) == len(set(columns)) > 20


def test_what_is_not_recorded_is_no_value(data):
    data.run("a")
    run, batch = data.load().runs["a"], find_field("max_batch")
    assert batch.value(run) is batch.sort_key(run) is None


@pytest.mark.parametrize(
    "name", ["evidence", "notes", "settings", "versions", "measured.gib", "evidence.kind"]
)
def test_an_empty_list_is_not_recorded(data, name):
    data.run("a", settings={})
    assert field_named(name).value(data.load().runs["a"]) is None


def test_limits_and_words_come_from_the_schema():
    assert find_field("measured.mfu").most == 1
    assert find_field("tag").choices == ("MIN", "RECOMMENDED")
    assert find_field("task").choices == ()
