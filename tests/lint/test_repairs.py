"""Repairs of run files: mechanical ones are done, everything else stays as typed."""

from __future__ import annotations

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from sphinx_verl_resources.catalog.files import bundled_directory
from sphinx_verl_resources.catalog.yaml_data import read_yaml
from sphinx_verl_resources.lint import repairs
from sphinx_verl_resources.lint.repairs import repaired

LINE = "# yaml-language-server: $schema=../schema/run.json\n"
COMMIT = "2239fd0ff7210c80ad63e20581924d1f66167429"
RUNS = sorted((bundled_directory().path / "runs").glob("*.yaml"))

#: A file before and after, without the schema line, and the repairs.
CASES = {
    "the id": ("id: b # mine\n", "id: a # mine\n", ["2: id 'b' changed to 'a', the file name"]),
    "an id that is a number": ("id: 7\n", "id: a\n", ["2: id '7' changed to 'a', the file name"]),
    "a version": (
        'infer: {engine: vllm, version: 0.10 }\nversions: {verl: 0.4.0, torch: "2.6.0"}\n',
        'infer: {engine: vllm, version: "0.10" }\nversions: {verl: "0.4.0", torch: "2.6.0"}\n',
        ["2: infer.version quoted", "3: versions.verl quoted"],
    ),
    "a commit": ("script: {ref: 1234567, path: a.sh}\n", 'script: {ref: "1234567", path: a.sh}\n', ["2: script.ref quoted"]),
    "no version at all": ("infer: {engine: vllm, version: ~}\nversions: {verl: null, torch: true}\n", None, []),
    "a commit that is text": ("script: {ref: 8446e41, path: a.sh}\n", None, []),
    "lines of evidence": (
        "evidence:\n- {kind: log, ref: v1, path: a, lines: 40}\n",
        'evidence:\n- {kind: log, ref: v1, path: a, lines: "40"}\n',
        ["3: evidence.0.lines quoted"],
    ),
    "settings are not touched": ("settings: {trainer.version: 1.0, b.url: x.org/a}\n", None, []),
    "a link to a file": (
        f"script:\n  path: https://github.com/volcengine/verl/blob/{COMMIT}/examples/a%20b.sh#L7   # here\n",
        f"script:\n  ref: {COMMIT}\n  path: examples/a b.sh   # here\n",
        ["3: script.path: address split into ref, path"],
    ),
    "a link to a commit of digits": (
        "evidence:\n  - kind: commit\n    url: https://github.com/volcengine/verl/commit/1234567\n",
        'evidence:\n  - kind: commit\n    ref: "1234567"\n',
        ["4: evidence.0.url: address split into ref"],
    ),
    "a link to lines": (
        "evidence:\n  - kind: document\n    url: http://github.com/verl-project/verl/tree/v0.4/docs/a.md?plain=1#L3-L5\n",
        'evidence:\n  - kind: document\n    ref: v0.4\n    path: docs/a.md\n    lines: "3-5"\n',
        ["4: evidence.0.url: address split into ref, path, lines"],
    ),
    "a link in braces over lines stays": (f"script: {{\n  path: 'https://github.com/volcengine/verl/blob/{COMMIT}/a.sh'}}\n", None, []),
    "a link beside another": (f"script: {{ref: main, path: 'https://github.com/volcengine/verl/blob/{COMMIT}/a.sh'}}\n", None, []),
    "a link elsewhere": ("evidence: [{kind: log, url: https://github.com/other/verl/blob/main/a.md}]\n", None, []),
    "an address without scheme": (
        "contributor: {name: J, url: github.com/j}\n",
        "contributor: {name: J, url: https://github.com/j}\n",
        ["2: contributor.url: https:// added"],
    ),
    "no address": ("contributor: {name: J, url: somewhere}\n", None, []),
    "the order stays": ("size: 7B\ngpus: {type: H100, count: 8}\nid: a\n", None, []),
    "not YAML": ("id: [\n", None, []),
    "a key twice": ("size: 7B\nid: a\nid: b\n", None, []),
    "a list": ("- id: b\n", None, []),
    "nothing": ("", None, []),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_repairs(name):
    before, after, done = CASES[name]
    text, repairs = repaired(LINE + before, "a")
    assert text == LINE + (before if after is None else after)
    assert sorted(f"{repair.line}: {repair.done}" for repair in repairs) == done


def test_schema_line():
    assert repaired("id: a\n", "a")[0] == f"{LINE}id: a\n"
    assert repaired("# yaml-language-server: $schema=https://example.org/run.json\nid: a\n", "a")[1] == ()


def test_a_remark_behind_the_schema_stays():
    wrong = LINE.replace("run.json\n", "gpus.json  # keep me\n")
    text, repairs = repaired(f"{wrong}id: a\n", "a")
    assert text == LINE.replace("\n", "  # keep me\n") + "id: a\n"
    assert [repair.done for repair in repairs] == ["schema line corrected"]
    assert repaired(text, "a") == (text, ())


@pytest.mark.parametrize("above", ["# Licence\n", "---\n", "%YAML 1.1\n# b\n\n---\n"])
def test_a_schema_line_below_others_is_moved_and_not_doubled(above):
    text, repairs = repaired(f"{above}{LINE}id: a\n", "a")
    assert text == f"{LINE}{above}id: a\n"
    assert [repair.done for repair in repairs] == ["schema line moved to the top"]


def test_a_schema_line_that_is_wrong_in_two_ways():
    wrong = LINE.replace("run.json", "gpus.json")
    text, repairs = repaired(f"# Licence\n{wrong}id: a\n", "a")
    assert text == f"{LINE}# Licence\nid: a\n"
    assert [repair.done for repair in repairs] == ["schema line corrected", "schema line moved to the top"]


def test_a_file_name_of_digits():
    assert repaired(f"{LINE}id: b\n", "2025")[0] == f'{LINE}id: "2025"\n'


def test_a_file_name_that_is_no_id():
    assert repaired(f"{LINE}id: b\n", "A b") == (f"{LINE}id: b\n", ())


def test_line_ends_stay():
    text, _repairs = repaired("size: 7B\r\nid: b\r\n", "a")
    assert text == (LINE + "size: 7B\nid: a\n").replace("\n", "\r\n")


def test_line_ends_of_both_kinds_become_those_of_most_lines():
    text, _repairs = repaired(f"{LINE}id: b\r\nsize: 7B\n# end\n", "a")
    assert text == f"{LINE}id: a\nsize: 7B\n# end\n"


@pytest.mark.parametrize("text", ["size: 7B\rid: b\r", f"{LINE}# a\rb\nsize: 7B\nid: b\n"])
def test_lines_that_end_in_carriage_returns_are_left_alone(text):
    assert repaired(text, "a") == (text, ())


def test_schema_lines_of_other_files():
    line = "# yaml-language-server: $schema=schema/gpus.json"
    other = line.replace("gpus", "run")
    assert repaired("gpus: []\r\n", "gpus", "gpus")[0] == f"{line}\r\ngpus: []\r\n"
    assert repaired(f"{other}\r\ngpus: []\r\n", "gpus", "gpus")[0] == f"{line}\r\ngpus: []\r\n"
    old = f"{other}\rgpus: []\r"
    assert repaired(old, "gpus", "gpus") == (old, ()), "nothing but its first line would be left"


@pytest.mark.parametrize("path", RUNS, ids=lambda path: path.stem)
def test_recorded_runs_need_none(path):
    text = path.read_text("utf-8")
    assert repaired(text, path.stem) == (text, ())


def test_a_file_is_parsed_again_only_where_something_was_repaired(monkeypatch):
    composed = []
    compose = repairs.yaml.compose
    monkeypatch.setattr(
        repairs.yaml, "compose", lambda *words, **more: composed.append(1) or compose(*words, **more)
    )
    for text, times in ((f"{LINE}id: a\n", 1), (f"{LINE}id: b\n", 2)):
        composed.clear()
        repaired(text, "a")
        assert len(composed) == times


@given(text=st.text(max_size=200) | st.sampled_from(sorted(CASES)).map(lambda name: CASES[name][0]))
def test_repairs_are_done_once_and_change_no_other_value(text):
    once, _repairs = repaired(text, "a")
    assert repaired(once, "a") == (once, ())
    before, after = (
        read_yaml(text.encode("utf-8", "surrogatepass")),
        read_yaml(once.encode("utf-8", "surrogatepass")),
    )
    assert bool(before.problems) == bool(after.problems)
    if isinstance(before.data, dict) and not before.problems:
        assert list(before.data) == list(after.data)
        assert yaml.safe_load(once) is not None
