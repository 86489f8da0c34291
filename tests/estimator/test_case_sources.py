"""Rejected observations: without the address of a source, or with impossible figures."""

from __future__ import annotations

from pathlib import Path

import pytest

from sphinx_verl_resources.dataset import DataFile
from sphinx_verl_resources.estimator.cases import Cases, load_cases

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
