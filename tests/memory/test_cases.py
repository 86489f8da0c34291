"""Files of cases: what is read, the message of each mistake, and the bundled cases."""

from __future__ import annotations

from pathlib import Path

import pytest

from sphinx_verl_resources.dataset import DataFile, Dataset, configured_directory
from sphinx_verl_resources.memory.cases import CaseMeasured, Source, load_cases

ADDRESS_MISSING = "the address of the case's source is missing; add source: {repo: owner/name, path: …}, {repo: owner/name, issue: 12} or {url: https://…} [verl.missing_key]"


GOOD = "- {id: good, model: Qwen/Qwen2.5-7B, config: {}}\n"


def read(text: str):
    return several({"cases/a.yaml": text})


def several(texts: dict[str, str], **options: bool):
    return load_cases([DataFile(Path(name), name, text.encode()) for name, text in texts.items()], **options)


# -- what is read

#: Fields of a case, an expression, and its value.
VALUES = [
    ("config: {}", "case.id, case.model, dict(case.config)", ("a", "m", {})),
    ("config: {}", "case.gpus.count, case.outcome, case.measured, case.source", (None, None, None, None)),
    ("config: {data.seed: 1, data: {a: {b: x, c: [d, e]}, f: null, g: {}}}", "dict(case.config)",
     {"data.seed": 1, "data.a.b": "x", "data.a.c": ("d", "e"), "data.f": None}),
    ("config: {}, gpus: {count: 8, memory_gb: 80}", "case.gpus.count, type(case.gpus.memory_gb)", (8, float)),
    ("config: {}, observed_tokens: {prompt_length_min: 0, total_num_tokens: 9}", "case.observed_tokens['total_num_tokens']", 9.0),
    ("training: {lora: {rank: 16, targets: all-linear}}", "case.config, case.training['lora']['targets']", (None, "all-linear")),
    ("config: {}, source: 'owner/repo@v1.2:docs/page.md'", "case.source.where, case.source.address", ("owner/repo@v1.2:docs/page.md", None)),
    ("config: {}, source: 'https://example.org/a?b=1'", "case.source.address, case.source.where", ("https://example.org/a?b=1", None)),
    ("config: {}, outcome: fits", "case.is_scored", True),
    ("config: {}", "case.is_scored", False),
    ("config: {}, outcome: oom, contested: elsewhere", "case.is_scored", False),
    ("config: {}, outcome: oom, not_scored: unknown lengths", "case.is_scored", False),
]  # fmt: skip


@pytest.mark.parametrize(("fields", "expression", "value"), VALUES)
def test_the_fields_of_a_case(fields, expression, value):
    cases = read(f"- {{id: a, model: m, {fields}}}\n")
    assert cases.problems == ()
    assert eval(expression, {"case": cases.by_id["a"]}) == value


#: Sources and their addresses.
ADDRESSES = [
    ({}, None),
    ({"where": "a talk"}, None),
    ({"repo": "o/r", "where": "issue 12"}, None),
    ({"repo": "a fork of o/r", "path": "a.md"}, None),
    ({"path": "a.md"}, None),
    ({"issue": 12}, None),
    ({"repo": "o/r", "issue": 12}, "https://github.com/o/r/issues/12"),
    ({"repo": "o/r", "path": "a/b.csv", "commit": "0123abc"}, "https://github.com/o/r/blob/0123abc/a/b.csv"),
    ({"repo": "o/r", "path": "a.md"}, "https://github.com/o/r/blob/HEAD/a.md"),
    ({"repo": "o/r", "path": "a.md", "url": "https://example.org/log"}, "https://example.org/log"),
]


@pytest.mark.parametrize(("source", "address"), ADDRESSES)
def test_the_address_of_a_source_which_every_recorded_case_needs(source, address):
    assert Source(**source).address == address
    texts = {"a": f"- {{id: a, model: m, config: {{}}, source: {source or 'null'}}}"}
    assert several(texts).problems == (), "a run that is to be estimated needs none"
    cases = several(texts, recorded=True)
    assert [str(each) for each in cases.problems] == (
        [] if address else [f"a:1:41: ERROR: {ADDRESS_MISSING}"]
    )
    assert len(cases.by_id) == bool(address)


COUNTERS = {
    "torch-max-allocated": "torch-allocated",
    "perf/max_memory_allocated_gb": "torch-allocated",
    "the peak of\ntorch.cuda.max_memory_allocated after ten steps": "torch-allocated",
    "torch-max-allocated (includes the sleeping in-process rollout pool)": "torch-allocated",
    "Torch max allocated, pool excluded": "torch-allocated",
    "torch allocated after building vllm rollout": "torch-static",
    "peak memory (reserved)": "torch-reserved",
    "allocated, not reserved": "torch-allocated",
    "NVIDIA-SMI": "unstated",
    "Peak VRAM column of project baseline table": "unstated",
    None: "unstated",
}


@pytest.mark.parametrize(("counter", "kind"), COUNTERS.items())
def test_the_kind_of_a_counter_follows_from_its_description_unless_it_is_given(counter, kind):
    assert CaseMeasured(counter=counter).kind == kind
    assert CaseMeasured(counter=counter, counter_kind="unstated").kind == "unstated"


def test_places():
    (_, entry) = read(
        f"{GOOD}- id: b\n  model: m\n  config:\n    data.a: 64\n    b: {{c.d: {{e: true}}}}\n"
    ).entries
    places = {(): "2:3", ("model",): "3:10", ("config", "data.a"): "5:13", ("config", "b.c.d.e"): "6:18", ("config", "data.no"): "5:5"}  # fmt: skip
    assert [str(entry.document.place(loc)) for loc in places] == [f"cases/a.yaml:{place}" for place in places.values()]  # fmt: skip


def test_ids_are_unique_in_a_directory_and_replace_those_of_an_earlier_one():
    other = "- {id: other, model: m, config: {}}\n"
    mine = GOOD.replace("Qwen/Qwen2.5-7B", "me/mine")
    cases = several({"d/a.yaml": GOOD + GOOD + other, "d/b.yaml": GOOD, "e/a.yaml": mine})
    assert [str(problem) for problem in cases.problems] == [
        f"{place}: ERROR: the id 'good' is already used at d/a.yaml:1:8; rename one of the two [verl.duplicate_name]"
        for place in ("d/a.yaml:2:8", "d/b.yaml:1:8")
    ]
    rows = [(entry.id, entry.case and entry.case.model) for entry in cases.entries]
    assert rows == [("good", None), ("other", "m"), ("good", None), ("good", "me/mine")]
    assert {name: case.model for name, case in cases.by_id.items()} == {"other": "m", "good": "me/mine"}


# -- mistakes

CASE = "- id: a\n  model: m\n  "
NO_LIST = "expected a list of cases; begin each case with '- id:' [verl.wrong_type]"
#: Texts, the problems in them, and the ids of the broken cases.
MISTAKES = {
    "no settings": (f"{CASE}outcome: fits\n", ["1:3: ERROR: the case has no settings; add 'config' with verl's keys, or 'training' [verl.missing_key]"], ["a"]),
    "a text for a case": ("- text\n", ["1:3: ERROR: expected keys and values, got 'text'; its keys are id, "], ["case 1"]),
    "no id": ("- {model: m, config: {}}\n", ["1:3: ERROR: the key 'id' is missing; add it: Unique name. "], ["case 1"]),
    "a list of mappings": (f"{CASE}config:\n    a.b:\n    - {{c: 1}}\n", ["5:5: ERROR: config.a.b: expected text, a number, true, false, null or a list "], ["a"]),
    "two lines": (f'{CASE}config:\n    a: {{b: "x\\ny"}}\n', ["4:12: ERROR: config.a.b: expected one line "], ["a"]),
    "an unknown outcome": (f"{CASE}config: {{}}\n  outcome: crash\n", ["4:12: ERROR: outcome: unknown value 'crash'; allowed: measured, fits, oom "], ["a"]),
    "a negative length": (
        f"{CASE}config: {{}}\n  observed_tokens: {{prompt_length_mean: -1}}\n", ["4:41: ERROR: observed_tokens.prompt_length_mean: Input should be greater than or equal to 0"], ["a"]
    ),
    "an unknown length": (
        f"{CASE}config: {{}}\n  observed_tokens: {{prompt_lenght_mean: 9}}\n",
        ["4:21: ERROR: observed_tokens.prompt_lenght_mean: unknown value \"'prompt_lenght_mean'\"; did you mean 'prompt_length_mean'? "], ["a"],
    ),
    "unknown keys": (
        f"{CASE}confg: {{}}\n  config: {{}}\n  measured: {{gib: 1, peak: 2}}\n  gpus: {{count: 2, kind: fast}}\n",
        ["3:3: WARNING: unknown key 'confg'; did you mean 'config'? ", "5:22: WARNING: unknown key 'peak'; allowed: gib, ",
         "6:20: WARNING: unknown key 'kind'; allowed: count, "],
        [],
    ),
    "an error beside an unknown key": (
        f"{CASE}config: {{}}\n  extra: 1\n  outcome: 7\n", ["4:3: WARNING: unknown key 'extra'; ", "5:12: ERROR: outcome: unknown value '7'; "], ["a"]
    ),
}  # fmt: skip


def begins(expected: list[str], problems) -> bool:
    messages = [str(problem).removeprefix("cases/a.yaml:") for problem in problems]
    return len(messages) == len(expected) and all(map(str.startswith, messages, expected))


@pytest.mark.parametrize("name", MISTAKES)
def test_a_mistake_has_a_message_and_the_other_cases_stay(name):
    text, expected, broken = MISTAKES[name]
    cases = read(text + GOOD)
    assert begins(expected, cases.problems), cases.problems
    assert [entry.id for entry in cases.entries if entry.case is None] == broken
    errors = [problem.text for problem in cases.problems if problem.is_error]
    assert [entry.error for entry in cases.entries] == [*(errors or [""]), ""]
    assert [*cases.by_id] == (["good"] if broken else ["a", "good"])


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("[]", []),
        ("", [f"1:1: ERROR: {NO_LIST}"]),
        ("id: a\nmodel: m\n", [f"1:1: ERROR: {NO_LIST}"]),
        ("- &x {id: a}\n- *x\n", ["1:3: ERROR: the anchor 'x' is not read; "]),
        (
            f'- {{id: a, model: m, config: {{}}, note: "\\u202e"}}\n{GOOD}',
            ["1:39: ERROR: invisible character U+202E; "],
        ),
    ],
)
def test_files_without_cases(text, says):
    cases = read(text)
    assert begins(says, cases.problems), cases.problems
    assert cases.entries == ()


@pytest.mark.parametrize("value", [".nan", ".inf", "-1", "0", "1e400", "text"])
@pytest.mark.parametrize("field", ["measured.gib", "measured.nvidia_smi_mib", "gpus.memory_gb", "gpus.count"])
def test_impossible_figures(field, value):
    group, _, name = field.partition(".")
    (problem,) = read(f"{CASE}config: {{}}\n  {group}: {{{name}: {value}}}\n").problems
    assert problem.is_error
    assert (problem.place.line, problem.place.column) == (4, len(field) + 7)


# -- the bundled cases


@pytest.fixture(scope="module")
def bundled():
    return load_cases(Dataset().files["cases"], recorded=True)


def test_own_cases_are_added_to_the_bundled_ones(tmp_path, bundled):
    (tmp_path / "data/cases").mkdir(parents=True)
    (tmp_path / "data/cases/mine.yaml").write_text(GOOD)
    dataset = Dataset([configured_directory("data", tmp_path)])
    assert [*load_cases(dataset.files["cases"]).by_id] == [*bundled.by_id, "good"]


def test_bundled_cases_have_what_an_estimate_needs(bundled):
    data = Dataset()
    assert bundled.problems == ()
    assert len(bundled.by_id) >= 164
    for name, case in bundled.by_id.items():
        assert case.confidence in {"high", "medium", "low"}, name
        assert (case.outcome == "measured") == (case.measured is not None), name
        assert case.outcome, name
        assert case.contested is None or case.not_scored is None, name
        if case.is_scored:
            assert case.model in data.architectures, name
            assert case.gpus.count, name
            assert case.gpus.type in data.gpus if case.gpus.type else case.gpus.memory_gb or case.measured, (
                name
            )
    contested = [name for name, case in bundled.by_id.items() if case.contested]
    assert len(contested) == 5
    assert all(name.startswith("tuning-") for name in contested)
