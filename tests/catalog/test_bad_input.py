"""Each mistake gives one clear line: place, level, message, remedy, code."""

from __future__ import annotations

import pytest

RUN = """\
id: a
size: 7B
tag: MIN
model: Qwen/Qwen2.5-7B-Instruct
task: GRPO
gpus: {count: 2, type: H100}
train: fsdp
infer: {engine: vllm, version: "0.8.3"}
"""


def replaced(old: str, new: str) -> str:
    assert old in RUN
    return RUN.replace(old, new)


CASES = {
    "unknown key": (
        RUN + "modle: x\n",
        "data/runs/a.yaml:9:1: ERROR: unknown key 'modle'; did you mean 'model'? [verl.unknown_key]",
    ),
    "unknown key inside": (
        replaced("type: H100", "type: H100, nods: 1"),
        "data/runs/a.yaml:6:30: ERROR: unknown key 'nods'; did you mean 'nodes'? [verl.unknown_key]",
    ),
    "unknown key far from any": (
        replaced("version:", "vendor:"),
        "data/runs/a.yaml:8:23: ERROR: unknown key 'vendor'; allowed: engine, version [verl.unknown_key]",
    ),
    "missing key": (
        replaced("task: GRPO\n", ""),
        "data/runs/a.yaml:1:1: ERROR: the key 'task' is missing; add it: Algorithm and variant, for example "
        "task: GRPO [verl.missing_key]",
    ),
    "missing key inside": (
        replaced("count: 2, ", ""),
        "data/runs/a.yaml:6:7: ERROR: the key 'count' is missing in 'gpus'; add it: Number of GPUs, over all nodes "
        "[verl.missing_key]",
    ),
    "text for a number": (
        replaced("count: 2", "count: two"),
        "data/runs/a.yaml:6:15: ERROR: gpus.count: expected a whole number, got the text 'two' [verl.wrong_type]",
    ),
    "quoted number": (
        replaced("count: 2", 'count: "2"'),
        "data/runs/a.yaml:6:15: ERROR: gpus.count: expected a whole number, got the text '2'; write 2 [verl.wrong_type]",
    ),
    "underscores": (
        RUN + "max_batch: 1_000\n",
        "data/runs/a.yaml:9:12: ERROR: max_batch: expected a whole number, got the text '1_000'; write 1000 "
        "[verl.wrong_type]",
    ),
    "fraction": (
        replaced("count: 2", "count: 2.5"),
        "data/runs/a.yaml:6:15: ERROR: gpus.count: expected a whole number, got 2.5 [verl.wrong_type]",
    ),
    "number for a version": (
        replaced('"0.8.3"', "0.10"),
        "data/runs/a.yaml:8:32: ERROR: infer.version: expected text, got a number, 0.10; put it in quotes: \"0.10\" "
        "[verl.wrong_type]",
    ),
    "boolean for text": (
        replaced("task: GRPO", "task: true"),
        "data/runs/a.yaml:5:7: ERROR: task: expected text, got true or false, true; put it in quotes: \"true\" "
        "[verl.wrong_type]",
    ),
    "nothing for text": (
        replaced("task: GRPO", "task:"),
        "data/runs/a.yaml:5:6: ERROR: task: expected text, got nothing [verl.wrong_type]",
    ),
    "list for text": (
        replaced("task: GRPO", "task: [GRPO]"),
        "data/runs/a.yaml:5:7: ERROR: task: expected text, got a list [verl.wrong_type]",
    ),
    "text for a mapping": (
        replaced("gpus: {count: 2, type: H100}", "gpus: 2*H100"),
        "data/runs/a.yaml:6:7: ERROR: gpus: expected keys and values, got the text '2*H100'; its keys are count, type, nodes, memory_gb; for example gpus: {count: 4, type: H800} [verl.wrong_type]",
    ),
    "a list instead of a run": (
        "- id: a\n",
        "data/runs/a.yaml:1:1: ERROR: expected keys and values, got a list; its keys are id, size, tag, model, task, gpus, train, infer, label, max_batch, script, contributor, kind, added, versions, settings, measured, evidence, notes [verl.wrong_type]",
    ),
    "no GPU": (
        replaced("count: 2", "count: 0"),
        "data/runs/a.yaml:6:15: ERROR: gpus.count: must be at least 1, got '0' [verl.wrong_value]",
    ),
    "a billion GPUs": (
        replaced("count: 2", "count: 1000000000"),
        "data/runs/a.yaml:6:15: ERROR: gpus.count: must be at most 100000, got '1000000000' [verl.wrong_value]",
    ),
    "unknown tag": (
        replaced("tag: MIN", "tag: MINIMUM"),
        "data/runs/a.yaml:3:6: ERROR: tag: unknown value 'MINIMUM'; did you mean 'MIN'? allowed: MIN, RECOMMENDED "
        "[verl.unknown_value]",
    ),
    "unknown size": (
        replaced("size: 7B", "size: 7b"),
        "data/runs/a.yaml:2:7: ERROR: size: unknown size class '7b'; the nearest is 7B; the size classes are 0.5B, 1.5B, 3B, 7B, 14B, "
        "32B, 70B, 122B, 235B, 405B, 671B [verl.unknown_size]",
    ),
    "unknown GPU": (
        replaced("H100", "H1000"),
        "data/runs/a.yaml:6:24: ERROR: gpus.type: unknown GPU 'H1000'; did you mean 'H100'? If not, add it to gpus.yaml [verl.unknown_gpu]",
    ),
    "unknown model": (
        replaced("Qwen/Qwen2.5-7B-Instruct", "Qwen/Qwen2.5-7B-Instrukt"),
        "data/runs/a.yaml:4:8: ERROR: model: unknown model 'Qwen/Qwen2.5-7B-Instrukt'; did you mean "
        "'Qwen/Qwen2.5-7B-Instruct'? If not, add it to architectures.yaml [verl.unknown_model]",
    ),
    "id unlike the file name": (
        replaced("id: a", "id: b"),
        "data/runs/a.yaml:1:5: ERROR: id: 'b' differs from the file name 'a.yaml'; write id: a, or rename the file "
        "[verl.id_mismatch]",
    ),
    "id with a dot": (
        replaced("id: a", "id: qwen2.5"),
        "data/runs/a.yaml:1:5: ERROR: id: expected lower-case letters and digits with single hyphens between them, got 'qwen2.5'; "
        "write qwen2-5 [verl.wrong_value]",
    ),
    "javascript link": (
        RUN + "contributor: {name: x, url: 'javascript:alert(1)'}\n",
        "data/runs/a.yaml:9:29: ERROR: contributor.url: expected an address that begins with https://, got "
        "'javascript:alert(1)' [verl.bad_url]",
    ),
    "link with a password": (
        RUN + "evidence: [{kind: log, url: 'https://me:secret@example.org/'}]\n",
        "data/runs/a.yaml:9:29: ERROR: evidence.0.url: an address must not contain a user name or password [verl.bad_url]",
    ),
    "e-mail address": (
        RUN + "contributor: {name: someone@example.org}\n",
        "data/runs/a.yaml:9:21: ERROR: contributor.name: e-mail addresses are not allowed; give a name, and link a public "
        "profile [verl.email_address]",
    ),
    "path out of the repository": (
        RUN + "script: {ref: abc1234, path: ../../etc/passwd}\n",
        "data/runs/a.yaml:9:30: ERROR: script.path: expected a path relative to the root of verl's repository, got "
        "'../../etc/passwd' [verl.wrong_value]",
    ),
    "a day that does not exist": (
        RUN + "added: 2025-02-30\n",
        "data/runs/a.yaml:9:8: ERROR: added: expected a date such as 2025-06-12, got '2025-02-30' [verl.wrong_value]",
    ),
    "evidence without a place": (
        RUN + "evidence: [{kind: log}]\n",
        "data/runs/a.yaml:9:12: ERROR: evidence.0: evidence needs either 'url' or 'ref', not both [verl.wrong_value]",
    ),
    "a word in place of something to come": (
        RUN + "contributor: {name: TODO}\n",
        "data/runs/a.yaml:9:21: ERROR: contributor.name: the value is still TODO; fill it in, or remove the key [verl.todo]",
    ),
    "a number with its unit": (
        RUN + "measured: {gib: 71.3 GB}\n",
        "data/runs/a.yaml:9:17: ERROR: measured.gib: expected a number, got the text '71.3 GB'; write 71.3, without quotes and unit [verl.wrong_type]",
    ),
    "nothing measured": (
        RUN + "measured: {counter: device}\n",
        "data/runs/a.yaml:9:11: ERROR: measured: 'measured' needs at least one figure, for example 'gib' "
        "[verl.missing_key]",
    ),
    "a setting that is a mapping": (
        RUN + "settings:\n  data.x: {y: 1}\n",
        "data/runs/a.yaml:10:11: ERROR: settings.data.x: expected text, a number, true, false, null or a list of these; write keys with dots, as in data.train_batch_size: 64 "
        "[verl.wrong_type]",
    ),
    "a setting with a plus": (
        RUN + "settings:\n  +data.x: 1\n",
        "data/runs/a.yaml:10:3: ERROR: settings.+data.x: expected verl's dotted key, without '+' or '++' before it, got "
        "'+data.x' [verl.wrong_value]",
    ),
    "a tested run without a tag": (
        replaced("tag: MIN", "tag: null"),
        "data/runs/a.yaml:3:6: ERROR: tag is null, but the run's kind is 'tested'; fill it in, or write "
        "'kind: stated' or 'kind: measured' [verl.untested_claim]",
    ),
    "a commit that climbs": (
        RUN + "script: {ref: main/../../x, path: a.sh}\n",
        "data/runs/a.yaml:9:15: ERROR: script.ref: expected a commit, tag or branch: letters, digits, '.', '_', '/' and "
        "'-', got 'main/../../x' [verl.wrong_value]",
    ),
    "a hidden second line": (
        RUN + 'contributor: {name: "a\\r\\r.. raw:: html"}\n',
        "data/runs/a.yaml:9:21: ERROR: contributor.name: expected one line without tabs and without spaces around "
        "it [verl.wrong_value]",
    ),
    "a tag character": (
        RUN + "label: a\U000e0041b\n",
        "data/runs/a.yaml:9:9: ERROR: invisible character U+E0041; delete it [verl.bad_character]",
    ),
    "a backslash in quotes": (
        RUN + 'label: "C:\\path"\n',
        "data/runs/a.yaml:9:11: ERROR: invalid escape sequence; double the backslash, or use single quotes "
        "[verl.yaml_syntax]",
    ),
    "an empty file": (
        "",
        "data/runs/a.yaml:1:1: ERROR: the file is empty; begin the file with the key 'id' [verl.file_empty]",
    ),
    "a mark of YAML only": (
        "---   ",
        "data/runs/a.yaml:1:1: ERROR: the file is empty; begin the file with the key 'id' [verl.file_empty]",
    ),
    "a key twice": (
        RUN + "id: a\n",
        "data/runs/a.yaml:9:1: ERROR: duplicate key 'id'; keep one of the two [verl.duplicate_key]",
    ),
    "a script that says something else": (
        RUN + "script: {ref: abc1234, path: examples/tuning/7b/qwen2-7b_grpo_4_h100_fsdp_vllm.sh}\n",
        "data/runs/a.yaml:9:30: WARNING: the GPU count is '4' in the script's name, but '2' in the run file; correct the run file, or link the script that was actually run [verl.script_name]",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_one_mistake_one_line(data, name):
    text, expected = CASES[name]
    data.write("runs/a.yaml", text)
    assert data.problems() == [expected]


def test_all_problems_of_all_files_at_once(data):
    data.write(
        "runs/a.yaml", RUN.replace("count: 2", "count: two").replace("tag: MIN", "tag: X") + "foo: 1\n"
    )
    data.write("runs/b.yaml", "id: b\n")
    data.write("runs/c.yaml", "a: [")
    data.run("d")
    data.write("gpus.yaml", "gpus:\n  - name: X\n")
    places = [problem.split(": ")[0] for problem in data.problems()]
    assert places[:4] == [
        "data/gpus.yaml:2:5", "data/gpus.yaml:2:5", "data/gpus.yaml:2:5", "data/gpus.yaml:2:5",
    ]  # fmt: skip
    assert places[4:7] == ["data/runs/a.yaml:3:6", "data/runs/a.yaml:6:15", "data/runs/a.yaml:9:1"]
    assert len([place for place in places if "b.yaml" in place]) == 7
    assert places[-1].startswith("data/runs/c.yaml")
    assert list(data.load().runs) == ["d"]
    assert [(file.shown, file.size) for file in data.load().broken] == [
        ("data/runs/a.yaml", "7B"), ("data/runs/b.yaml", None), ("data/runs/c.yaml", None),
    ]  # fmt: skip


def test_a_misspelt_key_is_one_problem_and_not_also_a_missing_one(data):
    data.write("runs/a.yaml", RUN.replace("model:", "modle:").replace("count:", "coutn:"))
    assert [line.split(";")[0] for line in data.problems()] == [
        "data/runs/a.yaml:4:1: ERROR: unknown key 'modle'",
        "data/runs/a.yaml:6:8: ERROR: unknown key 'coutn'",
    ]


def test_names_are_looked_up_even_where_something_else_is_wrong(data):
    text = RUN.replace("H100", "H1000").replace("Qwen2.5-7B-Instruct", "Nothing-7B").replace("id: a", "id: b")
    data.write("runs/a.yaml", text + "foo: 1\n")
    assert [line.split("[")[-1] for line in data.problems()] == [
        "verl.id_mismatch]", "verl.unknown_model]", "verl.unknown_gpu]", "verl.unknown_key]",
    ]  # fmt: skip


def test_of_a_key_that_stands_there_twice_the_last_value_is_judged(data):
    data.write("runs/a.yaml", RUN + "tag: X\n")
    assert [line.split(": ")[0] for line in data.problems()] == [
        "data/runs/a.yaml:9:1",
        "data/runs/a.yaml:9:6",
    ]


def test_a_run_keeps_odd_text_as_it_is(data):
    data.run(
        "a",
        task="<script>alert(1)</script> *x* `y`_ |z| {{ q }} %s {0}",
        label="on",
        contributor={"name": "1_000"},
    )
    catalog = data.load()
    assert catalog.diagnostics == ()
    assert catalog.runs["a"].task == "<script>alert(1)</script> *x* `y`_ |z| {{ q }} %s {0}"


def test_registry_mistakes(data):
    data.write(
        "gpus.yaml",
        """\
gpus:
  - {name: X1, vendor: nvidia, memory_gb: 80, memory_mib: 81559, kind: reading, aliases: [X]}
  - {name: X2, vendor: nvidia, memory_gb: 80, memory_mib: 81559, kind: reading, aliases: [X]}
  - {name: X3, vendor: nvidea, memory_gb: 80, memory_mib: -1, kind: reading}
""",
    )
    assert data.problems() == [
        "data/gpus.yaml:3:5: ERROR: 'X' is also a name of entry 1 of 'gpus', 'X1'; keep it in one of the two [verl.duplicate_name]",
        "data/gpus.yaml:4:24: ERROR: gpus.2.vendor: unknown value 'nvidea'; did you mean 'nvidia'? allowed: nvidia, "
        "amd, huawei, intel [verl.unknown_value]",
        "data/gpus.yaml:4:59: ERROR: gpus.2.memory_mib: must be at least 1, got '-1' [verl.wrong_value]",
    ]
    data.write(
        "gpus.yaml", (data.path / "gpus.yaml").read_text().replace("nvidea", "nvidia").replace("-1", "1")
    )
    assert data.problems() == [
        "data/gpus.yaml:3:5: ERROR: 'X' is also a name of entry 1 of 'gpus', 'X1'; keep it in one of the two [verl.duplicate_name]"
    ]
