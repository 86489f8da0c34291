"""Cases: what is read, what is refused and how it is said, and that one bad case keeps no other from use."""

from __future__ import annotations

import math
import pickle
import re
from pathlib import Path

import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sphinx_verl_resources.catalog.cases import BrokenCase, CaseEntry, load_cases, with_marks
from sphinx_verl_resources.catalog.dataset import Dataset
from sphinx_verl_resources.catalog.files import (
    DataFile,
    bundled_directory,
    configured_directory,
    read_data_file,
    take_snapshot,
)
from sphinx_verl_resources.catalog.models.case import Case, counter_kind
from sphinx_verl_resources.catalog.yaml_data import FORBIDDEN
from sphinx_verl_resources.diagnostics import Diagnostic, Location

GOOD = "- {id: good, model: Qwen/Qwen2.5-7B, config: {}}\n"


def read(text: str, name: str = "cases/a.yaml"):
    return load_cases([DataFile(Path(name), name, text.encode())])


def only(text: str) -> Case:
    cases = read(text)
    assert cases.diagnostics == ()
    (entry,) = cases.entries
    assert isinstance(entry, CaseEntry)
    return entry.case


@pytest.fixture(scope="module")
def bundled():
    return load_cases(take_snapshot(bundled_directory(), [], Location("conf.py")).cases)


def test_what_is_required():
    case = only(GOOD)
    assert (case.id, case.model, dict(case.config)) == ("good", "Qwen/Qwen2.5-7B", {})
    assert case.gpus.count is case.gpus.type is case.outcome is case.measured is None
    assert not case.is_scored, "there is nothing to compare an estimate with"


def test_numbers_are_floats_where_fractions_make_sense():
    case = only(
        """
- id: a
  model: x/y
  gpus: {count: 8, memory_gb: 80}
  training: {micro_batch_per_gpu: 4, lora: {rank: 16, targets: all-linear}}
  observed_tokens: {total_num_tokens: 225525, prompt_length_max: 173}
  measured: {gib: 66, host_ram_gib: 24, nvidia_smi_mib: 77695, counter: nvidia-smi}
"""
    )
    assert isinstance(case.gpus.memory_gb, float)
    assert all(
        isinstance(getattr(case.measured, name), float) for name in ("gib", "host_ram_gib", "nvidia_smi_mib")
    )
    assert isinstance(case.observed_tokens.total_num_tokens, float)
    assert case.training.lora.targets == ("all-linear",)
    assert case.measured.counter_kind == "device"


def test_settings_are_flat_whatever_way_they_are_written():
    case = only(
        """
- id: a
  model: x/y
  config:
    data.train_batch_size: 64
    actor_rollout_ref:
      model: {lora_rank: 32, target_modules: [q_proj, v_proj]}
      actor.fsdp_config: {param_offload: true, wrap_policy: {}}
    trainer: {val_before_train: null}
"""
    )
    assert dict(case.config) == {
        "data.train_batch_size": 64,
        "actor_rollout_ref.model.lora_rank": 32,
        "actor_rollout_ref.model.target_modules": ("q_proj", "v_proj"),
        "actor_rollout_ref.actor.fsdp_config.param_offload": True,
        "trainer.val_before_train": None,
    }


def test_places():
    text = """\
- id: a
  model: x/y
  config: {}
- id: b
  model: x/y
  config:
    data.train_batch_size: 64
    actor: {fsdp.x: {param_offload: true}}
"""
    entry = read(text).by_id["b"]
    assert str(entry.place()) == "cases/a.yaml:4:3"
    assert str(entry.place("model")) == "cases/a.yaml:5:10"
    assert str(entry.place("config", "data.train_batch_size")) == "cases/a.yaml:7:28"
    assert str(entry.place("config", "actor.fsdp.x.param_offload")) == "cases/a.yaml:8:37"
    assert str(entry.place("config", "data.nowhere")) == "cases/a.yaml:7:5", "the value around it"


def test_a_source_is_a_line_or_a_mapping():
    line = only("- {id: a, model: m, config: {}, source: 'owner/repo@v1.2:docs/page.md'}").source
    assert (line.where, line.address) == ("owner/repo@v1.2:docs/page.md", None)
    page = only("- {id: a, model: m, config: {}, source: 'https://example.org/a?b=1'}").source
    assert page.address == page.url == "https://example.org/a?b=1"
    commit = "0123456789" * 4
    mapping = only(
        f"- {{id: a, model: m, config: {{}}, source: {{repo: o/r, path: a/b.csv, commit: '{commit}', where: line 2}}}}"
    ).source
    assert mapping.address == f"https://github.com/o/r/blob/{commit}/a/b.csv"
    issue = only("- {id: a, model: m, config: {}, source: {repo: o/r, issue: 12}}").source
    assert issue.address == "https://github.com/o/r/issues/12"
    file = only("- {id: a, model: m, config: {}, source: {repo: o/r, path: a.md}}").source
    assert file.address == "https://github.com/o/r/blob/HEAD/a.md", "the one on the main branch"


@pytest.mark.parametrize(
    ("counter", "kind"),
    [
        ("torch-max-allocated", "torch-allocated"),
        ("perf/max_memory_allocated_gb", "torch-allocated"),
        ("torch.cuda.max_memory_allocated after ten steps on device 0", "torch-allocated"),
        ("torch-max-allocated (includes the sleeping in-process rollout pool)", "torch-allocated-with-pool"),
        ("torch max allocated, pool excluded", "torch-allocated"),
        ("torch allocated after building vllm rollout", "torch-static"),
        ("peak memory (reserved)", "torch-reserved"),
        ("peak GPU memory (dashboard screenshot)", "device"),
        ("nvidia-smi", "device"),
        ("device memory used", "device"),
        ("Peak VRAM column of project baseline table", "unstated"),
        ("GPU memory column of the doc", "unstated"),
        ("stated peak, method not given", "unstated"),
        ("", "unstated"),
    ],
)
def test_the_kind_of_a_counter_follows_from_its_description(counter, kind):
    assert counter_kind(counter) == kind


def test_the_kind_of_a_counter_can_be_given():
    case = only(
        "- {id: a, model: m, config: {}, measured: {gib: 1, counter: torch max, counter_kind: torch-allocated-with-pool}}"
    )
    assert case.measured.counter_kind == "torch-allocated-with-pool"
    assert only("- {id: a, model: m, config: {}, measured: {gib: 1}}").measured.counter_kind == "unstated"


def case_with(lines: str) -> str:
    return "- id: a\n  model: m\n" + "".join(f"  {line}\n" for line in lines.splitlines())


#: What makes a case unusable, and the one line that says so.
ERRORS = {
    "no model": (
        "- id: a\n  config: {}\n",
        "1:3: ERROR: the key 'model' is missing; Checkpoint: a name of an entry of architectures.yaml; for example model: Qwen/Qwen2.5-7B-Instruct [verl.missing_key]",
    ),
    "misspelt model": (
        "- id: a\n  modle: m\n  config: {}\n",
        "2:3: ERROR: unknown key 'modle'; did you mean 'model'? [verl.unknown_key]",
    ),
    "no settings": (
        case_with("outcome: fits"),
        "1:3: ERROR: the case says nothing that determines memory; add 'config' with keys of verl, or 'training' for a "
        "plain training run [verl.missing_key]",
    ),
    "a text for a case": (
        "- just text\n",
        "1:3: ERROR: expected keys and values, got the text 'just text'; its keys are id, source, framework, version, task, "
        "model, train, infer, gpus, config, training, observed_tokens, outcome, phase, oom_message, measured, confidence, "
        "note, contested, not_scored, boundary [verl.wrong_type]",
    ),
    "settings that are a list": (
        case_with("config: [a, b]"),
        "3:11: ERROR: config: expected keys and values, got a list [verl.wrong_type]",
    ),
    "a setting that is a list of mappings": (
        case_with("config:\n  a.b:\n    - {c: 1}"),
        "5:7: ERROR: config.a.b: expected text, a number, true, false, null or a list of these [verl.wrong_type]",
    ),
    "a nested setting of two lines": (
        case_with('config:\n  a: {b: "x\\ny"}'),
        "4:12: ERROR: config.a.b: expected one line without tabs in it and without spaces around it [verl.wrong_value]",
    ),
    "a setting twice": (
        case_with("config:\n  a.b: 1\n  a: {b: 2}"),
        "4:5: ERROR: config: 'a.b' stands here twice, with dots and nested; keep one of the two [verl.duplicate_key]",
    ),
    "a key twice": (
        case_with("config:\n  a.b: 1\n  a.b: 2"),
        "5:5: ERROR: the key 'a.b' stands here a second time; keep one of the two [verl.duplicate_key]",
    ),
    "unknown outcome": (
        case_with("config: {}\noutcome: crash"),
        "4:12: ERROR: outcome: unknown value 'crash'; allowed: measured, fits, oom [verl.unknown_value]",
    ),
    "a figure with its unit": (
        case_with("config: {}\nmeasured: {gib: 45 GiB}"),
        "4:19: ERROR: measured.gib: expected a number, got the text '45 GiB'; write 45, without quotes and unit "
        "[verl.wrong_type]",
    ),
    "a figure below nothing": (
        case_with("config: {}\nmeasured: {gib: -1}"),
        "4:19: ERROR: measured.gib: must be more than 0.0, got '-1' [verl.wrong_value]",
    ),
    "no GPU": (
        case_with("config: {}\ngpus: {count: 0}"),
        "4:17: ERROR: gpus.count: must be at least 1, got '0' [verl.wrong_value]",
    ),
    "true for a number": (
        case_with("config: {}\nobserved_tokens: {total_num_tokens: true}"),
        "4:39: ERROR: observed_tokens.total_num_tokens: expected a number, got true [verl.wrong_type]",
    ),
    "adapters of no rank": (
        case_with("training:\n  lora: {rank: 0, targets: [q_proj]}"),
        "4:18: ERROR: training.lora.rank: must be at least 1, got '0' [verl.wrong_value]",
    ),
    "a number for a version": (
        case_with("config: {}\nversion: 0.10"),
        '4:12: ERROR: version: expected text, got a number, 0.10; put it in quotes: "0.10" [verl.wrong_type]',
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", ERRORS)
def test_a_bad_case_is_reported_and_the_others_stay(name):
    text, message = ERRORS[name]
    cases = read(text + GOOD)
    assert [str(problem) for problem in cases.diagnostics] == [f"cases/a.yaml:{message}"]
    broken, good = cases.entries
    assert isinstance(broken, BrokenCase)
    assert broken.id == ("case 1" if name == "a text for a case" else "a")
    assert broken.location == Location("cases/a.yaml", 1, 3)
    assert broken.error is cases.diagnostics[0]
    assert list(cases.by_id) == ["good"] == [good.case.id]


def test_unknown_keys_are_warnings():
    text = """\
- id: a
  model: m
  confg: {}
  config: {}
  measured: {gib: 1, peak_gib: 2}
  gpus: {count: 2, kind: fast}
"""
    cases = read(text)
    assert [str(problem) for problem in cases.diagnostics] == [
        "cases/a.yaml:3:3: WARNING: unknown key 'confg'; did you mean 'config'? [verl.unknown_key]",
        "cases/a.yaml:5:22: WARNING: unknown key 'peak_gib'; did you mean 'steady_gib'? [verl.unknown_key]",
        "cases/a.yaml:6:20: WARNING: unknown key 'kind'; allowed: count, type, nodes, memory_gb, memory_note, note "
        "[verl.unknown_key]",
    ]
    assert cases.by_id["a"].case.measured.gib == 1.0
    assert cases.broken == ()


def test_an_error_beside_an_unknown_key():
    cases = read("- {id: a, model: m, config: {}, extra: 1, outcome: 7}\n")
    assert [(problem.severity.name, problem.code.name) for problem in cases.diagnostics] == [
        ("WARNING", "unknown_key"), ("ERROR", "unknown_value"),
    ]  # fmt: skip
    assert cases.broken[0].error.is_error


def test_a_measured_case_without_a_figure_is_doubtful():
    cases = read("- {id: a, model: m, config: {}, outcome: measured}\n")
    assert [str(problem) for problem in cases.diagnostics] == [
        "cases/a.yaml:1:42: WARNING: the outcome is 'measured', and no figure is given; add measured: {gib: …, counter: …} "
        "[verl.missing_key]"
    ]
    assert list(cases.by_id) == ["a"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "1:1: ERROR: the file is empty; a file of this kind is a list, each item of which begins with '- id:' [verl.file_empty]"),
        ("id: a\nmodel: m\n", "1:1: ERROR: expected a list, got keys and values; a file of this kind is a list, each item of which begins with '- id:' [verl.wrong_type]"),
        ("nothing", "1:1: ERROR: expected a list, got the text 'nothing'; a file of this kind is a list, each item of which begins with '- id:' [verl.wrong_type]"),
        ("- &x {id: a}\n- *x\n", "1:3: ERROR: the anchor '&x' is not read; write the values out; data files do without anchors, aliases, merge keys, tags and second documents [verl.yaml_feature]"),
    ],
)  # fmt: skip
def test_files_that_are_no_list(text, message):
    cases = read(text)
    assert [str(problem) for problem in cases.diagnostics] == [f"cases/a.yaml:{message}"]
    assert cases.entries == ()


def test_an_empty_list_holds_no_cases():
    assert read("[]").entries == read("[]").diagnostics == ()


def test_a_character_that_hides_belongs_to_its_case():
    cases = read(f'- {{id: a, model: m, config: {{}}, note: "\\u202e"}}\n{GOOD}')
    assert [str(problem)[:60] for problem in cases.diagnostics] == [
        "cases/a.yaml:1:39: ERROR: invisible character U+202E; delete"
    ]
    assert list(cases.by_id) == ["good"]


def test_an_id_twice_in_a_file_or_directory():
    files = [
        DataFile(Path(name), name, text.encode())
        for name, text in (("d/a.yaml", GOOD + GOOD), ("d/b.yaml", GOOD), ("e/a.yaml", "[]"))
    ]
    cases = load_cases(files)
    assert [str(problem) for problem in cases.diagnostics] == [
        f"{place}: ERROR: the id 'good' is already that of a case at d/a.yaml:1:8; rename one of the two [verl.duplicate_name]"
        for place in ("d/a.yaml:2:8", "d/b.yaml:1:8")
    ]
    assert [type(entry) for entry in cases.entries] == [CaseEntry, BrokenCase, BrokenCase]
    assert [entry.id for entry in cases.broken] == ["good", "good"]


def test_a_later_directory_replaces_a_case():
    other = "- {id: other, model: m, config: {}}\n"
    mine = GOOD.replace("Qwen/Qwen2.5-7B", "me/mine")
    files = [
        DataFile(Path(name), name, text.encode())
        for name, text in (("d/a.yaml", GOOD + other), ("e/a.yaml", mine))
    ]
    cases = load_cases(files)
    assert cases.diagnostics == ()
    assert [(entry.case.id, entry.case.model) for entry in cases.entries] == [
        ("other", "m"),
        ("good", "me/mine"),
    ]


def test_own_cases_are_added_to_the_bundled_ones(tmp_path, bundled):
    (tmp_path / "data/cases").mkdir(parents=True)
    (tmp_path / "data/cases/mine.yaml").write_text(GOOD)
    (tmp_path / "data/cases/notes.txt").write_text("")
    (tmp_path / "data/cases/README.md").write_text("")
    directories = [configured_directory("data", tmp_path)]
    snapshot = take_snapshot(bundled_directory(), directories, Location("conf.py"))
    assert [str(problem) for problem in snapshot.problems] == [
        "data/cases/notes.txt:1:1: WARNING: the file 'notes.txt' is not read; a file of cases is named <name>.yaml "
        "[verl.file_unexpected]"
    ]
    assert list(load_cases(snapshot.cases).by_id) == [*bundled.by_id, "good"]
    assert snapshot.runs, "the bundled runs stay"
    (tmp_path / "data/cases/mine.yaml").write_text(GOOD + "#")
    assert take_snapshot(bundled_directory(), directories, Location("conf.py")).digest != snapshot.digest


def test_a_folder_that_is_nearly_called_cases(tmp_path):
    (tmp_path / "data/case").mkdir(parents=True)
    (tmp_path / "data/runs").mkdir()
    snapshot = take_snapshot(
        bundled_directory(), [configured_directory("data", tmp_path)], Location("conf.py")
    )
    assert [str(problem) for problem in snapshot.problems] == [
        "data/case:1:1: WARNING: the folder 'case' is not read; files of cases belong into the folder 'data/cases' "
        "[verl.file_unexpected]"
    ]


def test_a_file_that_the_user_names(tmp_path):
    (tmp_path / "mine.yaml").write_text(GOOD)
    file = read_data_file(tmp_path / "mine.yaml", "mine.yaml")
    assert list(load_cases([file]).by_id) == ["good"]
    with pytest.raises(FileNotFoundError):
        read_data_file(tmp_path / "none.yaml", "none.yaml")
    with pytest.raises(OSError, match="not a regular file: 'here'"):
        read_data_file(tmp_path, "here")


def test_marks_of_the_record():
    record = read(
        """
- {id: a, model: m, config: {x: 1}, outcome: fits, contested: somebody else says no, boundary: b}
- {id: b, model: m, config: {x: 1}, outcome: oom, not_scored: no model}
- {id: c, model: m, config: {x: 1}, outcome: oom, not_scored: no model}
- {id: d, model: m, config: {x: 1}, outcome: oom, not_scored: no model}
"""
    )
    cases = read(
        """
- {id: a, model: m, config: {x: 1}, outcome: fits}
- {id: b, model: m, config: {x: 2}, outcome: oom}
- {id: c, model: m, config: {x: 1}, outcome: oom, not_scored: my reason}
- {id: e, model: m, config: {x: 1}, outcome: oom}
- {id: d, model: m, config: {x: 1}, outcome: broken}
"""
    )
    marked = with_marks(cases, record)
    assert marked.by_id["a"].case.contested == "somebody else says no"
    assert marked.by_id["a"].case.boundary == "b"
    assert marked.by_id["b"].case.is_scored, "its settings are others"
    assert marked.by_id["c"].case.not_scored == "my reason"
    assert marked.by_id["e"].case.is_scored
    assert (marked.broken, marked.diagnostics) == (cases.broken, cases.diagnostics)
    assert cases.by_id["a"].case.is_scored, "the cases themselves are as they were"


def test_a_case_cannot_be_changed_and_survives_pickling():
    case = only(GOOD)
    assert pickle.loads(pickle.dumps(case)) == case
    with pytest.raises(ValueError, match="frozen"):
        case.model = "other"


def test_bundled_cases_have_no_problem(bundled):
    assert [str(problem) for problem in bundled.diagnostics] == []
    assert len(bundled.by_id) >= 164
    for entry in bundled.by_id.values():
        case = entry.case
        assert case.source is not None, case.id
        assert case.confidence in {"high", "medium", "low"}, case.id
        assert case.outcome is not None, case.id
        assert (case.outcome == "measured") == (case.measured is not None), case.id
        assert case.contested is None or case.not_scored is None, case.id


def test_bundled_cases_that_are_scored_name_what_an_estimate_needs(bundled):
    catalog = Dataset(take_snapshot(bundled_directory(), [], Location("conf.py"))).catalog
    for case in (entry.case for entry in bundled.by_id.values() if entry.case.is_scored):
        assert case.model in catalog.architectures, case.id
        assert case.gpus.count, case.id
        if case.gpus.type:
            assert case.gpus.type in catalog.gpus, case.id
        elif case.outcome != "measured":
            assert case.gpus.memory_gb, f"{case.id}: a run fits some memory, or none"


def test_the_contradictions_are_marked(bundled):
    assert {entry.case.id for entry in bundled.by_id.values() if entry.case.contested} == {
        "tuning-0.5b-lora-1h100",
        "tuning-32b-grpo-8h20-megatron",
        "tuning-32b-lora-4h100-bs45-x",
        "tuning-7b-lora-1h100-bs100",
        "tuning-7b-lora-1h100-bs101-x",
    }


def test_boundaries_have_two_sides(bundled):
    sides: dict[str, set[str]] = {}
    for entry in bundled.by_id.values():
        if entry.case.boundary:
            sides.setdefault(entry.case.boundary, set()).add(entry.case.outcome)
    assert len(sides) == 4
    assert all(outcomes == {"fits", "oom"} for outcomes in sides.values())


words = st.text(st.characters(codec="utf-8", exclude_categories=["Cs"]), max_size=12)
scalars = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(10**6), 10**6),
    st.floats(allow_nan=True),
    words,
    st.just("torch max"),
)
values = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(words, inner, max_size=3),
    max_leaves=6,
)
named = st.fixed_dictionaries(
    {},
    optional={
        name: values
        | st.dictionaries(st.sampled_from(["gib", "counter", "count", "rank", "lora", "a.b", "a", "where"]), values, max_size=4)
        for name in Case.model_fields
    },
)  # fmt: skip
#: Mostly cases that could be ones, with whatever in their fields.
anything = st.lists(
    values | named | named.map(lambda fields: {"id": "x", "model": "m", "config": {}, **fields}), max_size=4
)


@settings(suppress_health_check=[HealthCheck.too_slow])
@given(anything, words)
def test_no_content_stops_the_loader(items, tail):
    text = yaml.safe_dump([*items, yaml.safe_load(GOOD)[0] | {"id": "certainly good"}], allow_unicode=True)
    for content in (text, text + tail):
        cases = read(content)
        errors = [problem for problem in cases.diagnostics if problem.is_error]
        assert all(isinstance(problem, Diagnostic) for problem in cases.diagnostics)
        assert bool(errors) >= bool(cases.broken)
        for problem in cases.diagnostics:
            assert not re.search(rf"{FORBIDDEN.pattern}|\n", str(problem))
            assert problem.place.line >= 1
        for entry in cases.entries:
            if isinstance(entry, BrokenCase):
                assert entry.error in errors
            elif entry.case.measured and entry.case.measured.gib is not None:
                assert math.isfinite(entry.case.measured.gib)
    whole = read(text)
    if whole.entries:
        assert len(whole.entries) == len(items) + 1
        assert "certainly good" in whole.by_id
