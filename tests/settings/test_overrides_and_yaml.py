"""Settings from overrides, YAML and texts of any kind."""

from __future__ import annotations

import pytest

from sphinx_verl_resources.diagnostics import Location, Severity
from sphinx_verl_resources.settings.overrides import parse_value, read_overrides
from sphinx_verl_resources.settings.read import read_settings
from sphinx_verl_resources.settings.result import read_yaml_settings

HERE = Location("here", 1, 1)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("8", 8), ("-1", -1), ("1_024", 1024), ("0.5", 0.5), (".5", 0.5), ("5.", 5.0), ("1e-6", 1e-6), ("1E5", 1e5),
        ("0123", "0123"), ("1__0", "1__0"), ("8446e", "8446e"), ("1e9999", "1e9999"), ("nan", "nan"),
        ("True", True), ("false", False), ("null", None), ("None", "None"), ("~", "~"), ("", ""), ("  a b ", "a b"),
        ("Qwen/Qwen2.5-7B", "Qwen/Qwen2.5-7B"), ("a=b", "a=b"), ("console,wandb", "console,wandb"),
        ("'8'", "8"), ('"true"', "true"), ("'it\\'s'", "it's"), ("' a '", " a "),
        ("[]", ()), ("[console,wandb]", ("console", "wandb")), ("[1, 'a, b', null,]", (1, "a, b", None)),
        ("[[1,2],[3]]", ((1, 2), (3,))), ("[a b]", ("a b",)), ("[${a.b},1]", ("${a.b}", 1)),
        ("{}", {}), ("{a: b, c: {d: 1}}", {"a": "b", "c": {"d": 1}}), ("{a:[1,2]}", {"a": (1, 2)}),
        ("9" * 50, "9" * 50),
        # As hydra-core 1.3 reads them.
        (r"{m.blocks.\{*\}:{},c:[x\,y]}", {"m.blocks.{*}": {}, "c": ("x,y",)}), (r"x\,y", "x,y"), (r"1\,2", "1,2"),
        ("\\\\", "\\"), (r"b\c", r"b\c"), (r"\ 8 ", " 8"), (r"{x\ y:1}", {"x y": 1}), (r"\{\}", "{}"),
        (r"'x\{y'", r"x\{y"), (r"[1\,2,3]", ("1,2", 3)), (r"\[8", "[8"), (r"x\=y", "x=y"),
    ],
)  # fmt: skip
def test_values(text, value):
    found = parse_value(text)
    assert found == value
    assert type(found) is type(value)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[1", "[ is not closed"),
        ("['a'b]", "a comma is missing before 'b]'"),
        ("'a", "' is not closed"),
        ("[a]]", "unexpected ']' at the end"),
        ("{a: 1", "{ is not closed"),
        ("{a, b}", "a colon is missing after a key in braces"),
        ("[" * 50, "it is nested deeper than 20 levels"),
    ],
)
def test_values_that_cannot_be_read(text, message):
    with pytest.raises(ValueError) as caught:  # noqa: PT011
        parse_value(text)
    assert str(caught.value) == message
    found = read_overrides([f"a.b={text}", "c.d=1"], HERE)
    assert dict(found.values) == {"c.d": 1}
    assert message in found.problems[0].message


def test_overrides():
    words = [
        "data.train_batch_size=64", "+a.b=1", "++c.d=x=y", "e.f=", "~g.h", "i.j={k: 1, l: {m: [1, 2]}}", "n.o={}",
        "hydra.run.dir=/tmp", "model_engine=megatron", "p.q_1-r=2",
    ]  # fmt: skip
    found = read_overrides(words, HERE)
    assert found.values == {
        "data.train_batch_size": 64, "a.b": 1, "c.d": "x=y", "e.f": "", "g.h": None, "i.j.k": 1, "i.j.l.m": (1, 2),
        "model_engine": "megatron", "p.q_1-r": 2,
    }  # fmt: skip
    assert found.places == dict.fromkeys(found.values, HERE)
    assert found.problems == ()


@pytest.mark.parametrize("word", ["a.b", "=1", "a..b=1", "1a=2", "", "a b=1"])
def test_words_that_set_nothing(word):
    found = read_overrides([word], HERE)
    assert found.values == {}
    assert [problem.code for problem in found.problems] == ["wrong_value"]
    assert found.problems[0].remedy


def test_the_later_of_two_wins():
    found = read_settings("a.b=1\na.c=2\n+a.b=3\n", "x")
    assert found.values == {"a.c": 2, "a.b": 3}
    assert found.places["a.b"] == Location("x", 3, 1)
    (problem,) = found.problems
    assert str(problem) == (
        "x:3:1: WARNING: a.b is set twice; this value replaces the one in line 1; keep one of the two [verl.duplicate_key]"
    )


def test_the_later_of_two_wins_whether_it_is_known_or_not():
    assert read_settings("a.b=1 a.b=$X", "x").unresolved == {"a.b": "$X"}
    assert read_settings("a.b=1 a.b=$X", "x").values == {}
    assert read_settings("a.b=$X a.b=1", "x").unresolved == {}


def test_references_to_other_keys():
    words = [
        "a.b=${c.d}",
        "c.d=${e.f}",
        "e.f=1",
        "g.h=${no.such}",
        "i.j=${oc.env:HOME}/x",
        "k=${l}",
        "l=${k}",
    ]
    found = read_overrides(words, HERE)
    assert found.values == {"a.b": 1, "c.d": 1, "e.f": 1}
    assert found.unresolved == {
        "g.h": "${no.such}", "i.j": "${oc.env:HOME}/x", "k": "${l}", "l": "${k}",
    }  # fmt: skip
    assert {problem.code for problem in found.problems} == {"unresolved"}


def test_yaml():
    text = "# settings\ndata:\n  train_batch_size: 64\n  files: [a, b]\ntrainer.nnodes: 2\nactor.optim: {lr: 1e-6, x: null}\n"
    found = read_settings(text, "x.yaml")
    assert found.values == {
        "data.train_batch_size": 64, "data.files": ("a", "b"), "trainer.nnodes": 2, "actor.optim.lr": 1e-6,
        "actor.optim.x": None,
    }  # fmt: skip
    assert [(place.line, place.column) for place in found.places.values()] == [
        (3, 3),
        (4, 3),
        (5, 1),
        (6, 15),
        (6, 25),
    ]
    assert found.problems == ()


def test_yaml_with_a_key_in_both_forms():
    found = read_yaml_settings("data:\n  a: 1\ndata.a: 2\n", "x.yaml")
    assert found.values == {"data.a": 2}
    assert [(str(problem.place), problem.code, problem.severity) for problem in found.problems] == [
        ("x.yaml:3:1", "duplicate_key", Severity.WARNING)
    ]


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("a: b: c", "yaml_syntax"),
        ("a: &x 1\nb: *x", "yaml_feature"),
        ("trainer: {b: 1}\ntrainer: {b: 2}\n", "duplicate_key"),
        ("- a=1", "wrong_type"),
        ("a: [{b: 1}]", "unresolved"),
        ("a: " + "[" * 5_000, "yaml_syntax"),
    ],
)
def test_yaml_that_cannot_be_read(text, code):
    found = read_settings(text, "x.yaml")
    assert found.values == {}
    assert [problem.code for problem in found.problems] == [code]


@pytest.mark.parametrize("text", ["", "# nothing\n", "{}"])
def test_texts_that_set_nothing(text):
    found = read_settings(text, "x")
    assert (found.values, found.problems) == ({}, ())


@pytest.mark.parametrize(
    "text",
    [
        "trainer.nnodes: 2",
        "# note\n\n---\ntrainer: {nnodes: 2}",
        '{"trainer": {"nnodes": 2}}',
        "trainer.nnodes=2",
        "\n# note\n  trainer.nnodes=2  # note\n",
        "+trainer.nnodes='2'",
        "trainer.nnodes=1\r\ntrainer.nnodes=2\r\n",
        "python3 -m verl.trainer.main_ppo trainer.nnodes=2",
        "#!/bin/bash\nN=2\ntorchrun --nproc_per_node=8 verl/trainer/fsdp_sft_trainer.py trainer.nnodes=$N",
    ],
)
def test_kinds_of_text(text):
    found = read_settings(text, "x")
    assert {key: int(value) for key, value in found.values.items()} == {"trainer.nnodes": 2}
    assert not [problem for problem in found.problems if problem.is_error]


def test_overrides_in_a_text_keep_their_brackets():
    found = read_settings('a.b=f(x;y) a.c=[a,b] a.d="[\'$HOME/x\']"\na.e=$((2 * 8)) a.f="open', "x")
    assert found.values == {"a.b": "f(x;y)", "a.c": ("a", "b"), "a.e": 16, "a.f": "open"}
    assert found.unresolved == {"a.d": "['$HOME/x']"}
    assert [problem.code for problem in found.problems] == ["unresolved", "shell_syntax"]
