"""Cases: reading, the files that they come from, and replacement."""

from __future__ import annotations

import pickle
from pathlib import Path

import pytest
from case_texts import GOOD, read

from sphinx_verl_resources.dataset import (
    DataFile,
    read_data_file,
)
from sphinx_verl_resources.estimator.case_records import Case, counter_kind
from sphinx_verl_resources.estimator.cases import BrokenCase, CaseEntry, load_cases


def only(text: str) -> Case:
    cases = read(text)
    assert cases.diagnostics == ()
    (entry,) = cases.entries
    assert isinstance(entry, CaseEntry)
    return entry.case


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


def test_an_id_twice_in_a_file_or_directory():
    files = [
        DataFile(Path(name), name, text.encode())
        for name, text in (("d/a.yaml", GOOD + GOOD), ("d/b.yaml", GOOD), ("e/a.yaml", "[]"))
    ]
    cases = load_cases(files)
    assert [str(problem) for problem in cases.diagnostics] == [
        f"{place}: ERROR: the id 'good' is already used at d/a.yaml:1:8; rename one of the two [verl.duplicate_name]"
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


def test_a_file_that_the_user_names(tmp_path):
    (tmp_path / "mine.yaml").write_text(GOOD)
    file = read_data_file(tmp_path / "mine.yaml", "mine.yaml")
    assert list(load_cases([file]).by_id) == ["good"]
    with pytest.raises(FileNotFoundError):
        read_data_file(tmp_path / "none.yaml", "none.yaml")
    with pytest.raises(OSError, match="not a regular file"):
        read_data_file(tmp_path, "here")


def test_a_case_cannot_be_changed_and_survives_pickling():
    case = only(GOOD)
    assert pickle.loads(pickle.dumps(case)) == case
    with pytest.raises(ValueError, match="frozen"):
        case.model = "other"
