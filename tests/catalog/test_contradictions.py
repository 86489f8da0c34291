"""Rejected observations: without the address of a source, or with contradictory figures."""

from __future__ import annotations

from pathlib import Path

import pytest

from sphinx_verl_resources.catalog.cases import Cases, load_cases
from sphinx_verl_resources.catalog.files import DataFile
from sphinx_verl_resources.cli.data import read_data

HEAD = "- id: a\n  model: m\n"


def read(text: str, **options) -> Cases:
    return load_cases([DataFile(Path("a"), "a", text.encode())], **options)


#: Sources without an address, and with one.
ADDRESSES = {
    "": False,
    "source: null": False,
    "source: a talk": False,
    "source: {where: a talk}": False,
    "source: {repo: o/r}": False,
    "source: {repo: o/r, where: issue 12}": False,
    "source: {repo: a fork of o/r, path: a.md}": False,
    "source: {path: a.md}": False,
    "source: {issue: 12}": False,
    "source: {repo: o/r, issue: 12}": True,
    "source: {repo: o/r, path: a.md}": True,
    "source: {url: 'https://example.org/log'}": True,
    "source: https://example.org/log": True,
}


@pytest.mark.parametrize("source", ADDRESSES)
def test_a_recorded_case_has_the_address_of_its_source(source):
    text = f"{HEAD}  config: {{}}\n  {source}\n"
    cases = read(text, recorded=True)
    place = "4:11" if source else "1:3"
    message = (
        f"a:{place}: ERROR: the address of the case's source is missing; add source: {{repo: owner/name, path: …}}, "
        "{repo: owner/name, issue: 12} or {url: https://…} [verl.missing_key]"
    )
    assert [str(problem) for problem in cases.diagnostics] == ([] if ADDRESSES[source] else [message])
    assert (list(cases.by_id) == ["a"]) is ADDRESSES[source]
    assert read(text).diagnostics == (), "a run that is to be estimated needs none"


#: A case with consistent figures, each as large as the others allow.
FULL = """\
- id: a
  model: Qwen/Qwen2.5-7B
  gpus: {{count: 8, type: H100}}
  config:
    data.train_batch_size: 4
    data.max_prompt_length: 512
    data.max_response_length: 1024
    actor_rollout_ref.rollout.n: 5
    actor_rollout_ref.actor.use_dynamic_bsz: {dynamic}
    actor_rollout_ref.actor.ppo_max_token_len_per_gpu: 768
    actor_rollout_ref.actor.ulysses_sequence_parallel_size: {spread}
  observed_tokens:
    {tokens}
  measured: {{{measured}}}
"""
LIMITS = {
    "prompt_length_min": 1, "prompt_length_mean": 512, "prompt_length_max": 512,
    "response_length_min": 0, "response_length_mean": 1024, "response_length_max": 1024,
    "global_seqlen_min": 1, "global_seqlen_mean": 9, "global_seqlen_max": 30720, "total_num_tokens": 30720,
}  # fmt: skip
SIZES = {"gib": 80, "steady_gib": 80, "counter": "nvidia-smi", "nvidia_smi_mib": 81920}
FIX, SET = "correct one of the two", "correct the figure or the setting"
GPU = "correct the figure, its counter or the GPU"
#: Changes to it, and the line, column and message of the single problem.
CONTRADICTIONS = {
    "mean above maximum": (
        {"prompt_length_mean": 300, "prompt_length_max": 200},
        f"14:25: ERROR: observed_tokens.prompt_length_mean is 300, above prompt_length_max, 200; {FIX}",
    ),
    "minimum above mean": (
        {"response_length_min": 900.5, "response_length_mean": 800},
        f"16:26: ERROR: observed_tokens.response_length_min is 900.5, above response_length_mean, 800; {FIX}",
    ),
    "one rank above all": (
        {"global_seqlen_max": 12_000, "total_num_tokens": 10_000},
        f"21:24: ERROR: observed_tokens.global_seqlen_max is 12,000, above total_num_tokens, 10,000; {FIX}",
    ),
    "a prompt above its limit": (
        {"prompt_length_max": 513},
        f"15:24: ERROR: observed_tokens.prompt_length_max is 513, above data.max_prompt_length, 512; {SET}",
    ),
    "a mean above its limit": (
        {"prompt_length_mean": 100, "response_length_mean": 1025, "response_length_max": ...},
        f"17:27: ERROR: observed_tokens.response_length_mean is 1,025, above data.max_response_length, 1,024; {SET}",
    ),
    "more tokens than the batch holds": (
        {"total_num_tokens": 30_721},
        "22:23: ERROR: observed_tokens.total_num_tokens is 30,721, above train_batch_size × n sequences of the "
        f"longest prompt and response, 30,720; {SET}",
    ),
    "a response above the budget": (
        {"spread": 1, "response_length_mean": 100},
        "18:26: ERROR: observed_tokens.response_length_max is 1,024, above "
        f"actor_rollout_ref.actor.ppo_max_token_len_per_gpu, 768; {SET}",
    ),
    "a mean sequence above the budget": (
        {"spread": 1, "response_length_mean": 700, "response_length_max": 700},
        "17:27: ERROR: observed_tokens.response_length_mean plus the mean prompt is 1,212, above "
        f"actor_rollout_ref.actor.ppo_max_token_len_per_gpu, 768; {SET}",
    ),
    "more than the GPU has": (
        {"gib": 80.5},
        f"23:19: ERROR: measured.gib is 80.5 GiB, above the memory of the GPU, 80 GiB; {GPU}",
    ),
    "more MiB than the GPU has": (
        {"nvidia_smi_mib": 81921},
        f"23:76: ERROR: measured.nvidia_smi_mib is 81,921 MiB, above the memory of the GPU, 81,920 MiB; {GPU}",
    ),
    "more between steps than at the peak": (
        {"gib": 70},
        f"23:35: ERROR: measured.steady_gib is 80, above gib, 70; {FIX}",
    ),
    "other counters may exceed the GPU": ({"gib": 99, "counter": "torch-max-allocated"}, ""),
    "no token budget": ({"spread": 1, "dynamic": "false"}, ""),
    "a limit that another setting gives": ({"dynamic": "${x}", "spread": "${y}"}, ""),
}  # fmt: skip


@pytest.mark.parametrize("name", CONTRADICTIONS)
def test_figures_that_contradict_each_other_are_refused(name):
    changes, message = CONTRADICTIONS[name]
    tokens = {key: changes.get(key, value) for key, value in LIMITS.items()}
    sizes = {key: changes.get(key, value) for key, value in SIZES.items()}
    text = FULL.format(
        dynamic=changes.get("dynamic", "true"),
        spread=changes.get("spread", 2),
        tokens="\n    ".join(f"{key}: {value}" for key, value in tokens.items() if value is not ...),
        measured=", ".join(f"{key}: {value}" for key, value in sizes.items()),
    )
    cases = read(text, gpus=read_data([]).gpus)
    expected = [f"a:{message} [verl.wrong_value]"] if message else []
    assert [str(problem) for problem in cases.diagnostics] == expected
    assert list(cases.by_id) == ([] if message else ["a"])


NOT_A_NUMBER = [".nan", ".inf", "-.inf", "-1", "0", "1e400"]


@pytest.mark.parametrize("value", NOT_A_NUMBER)
@pytest.mark.parametrize(
    "field",
    [
        "measured.gib", "measured.nvidia_smi_mib", "observed_tokens.prompt_length_mean",
        "observed_tokens.response_length_max", "observed_tokens.total_num_tokens", "gpus.memory_gb",
        "training.sequence_length",
    ],
)  # fmt: skip
def test_no_figure_is_nothing_or_endless(field, value):
    group, name = field.split(".")
    cases = read(f"{HEAD}  config: {{}}\n  {group}: {{{name}: {value}}}\n")
    (problem,) = cases.diagnostics
    assert problem.is_error
    assert (problem.place.line, problem.place.column) == (4, len(field) + 7)
    assert not cases.by_id
