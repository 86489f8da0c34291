"""Named entries: which one a name means after later entries replaced it or took its names."""

from __future__ import annotations

import json

import pytest

from sphinx_verl_resources.registries import Gpu, Registry
from sphinx_verl_resources.strict_yaml import read_yaml
from sphinx_verl_resources.validation import schema_text, validated


def gpu(name: str, *aliases: str, memory: int = 1) -> Gpu:
    numbers = {"memory_gb": memory, "memory_mib": 1}
    return Gpu.model_validate(
        {"name": name, "vendor": "amd", "kind": "nominal", "aliases": aliases} | numbers
    )


@pytest.mark.parametrize(
    ("entries", "memory", "names"),
    [
        ([gpu("A", "x"), gpu("B")], {"a": 1, "X": 1, "b": 1, "c": None}, ["A", "x", "B"]),
        # A later entry of the same name takes the place of the earlier one, and keeps its other names.
        ([gpu("A-1", "x"), gpu("B"), gpu("a 1", memory=2)], {"A1": 2, "x": 2}, ["a 1", "B"]),
        # A later entry takes a name; one without any name is gone.
        ([gpu("A", "x"), gpu("B", "x", memory=2)], {"A": 1, "x": 2}, ["A", "x", "B", "x"]),
        ([gpu("A"), gpu("B", "A", memory=2)], {"A": 2, "B": 2}, ["B", "A"]),
    ],
)
def test_a_name_means_the_last_entry_that_has_it(entries, memory, names):
    registry: Registry[Gpu] = Registry()
    for entry in entries:
        registry.add(entry)
    assert {name: (result := registry.get(name)) and result.memory_gb for name in memory} == memory
    assert registry.names == names


def test_the_name_of_an_entry_with_errors_is_known_but_means_no_entry():
    registry: Registry[Gpu] = Registry()
    registry.all_names.add("a1")
    assert ("A-1" in registry, registry.get("A-1"), [*registry]) == (True, None, [])


def test_the_core_reads_its_part_of_an_architecture_and_the_estimator_all_of_it():
    """Only the estimator knows all keys, so only it can tell which are wrong."""
    from sphinx_verl_resources import registries
    from sphinx_verl_resources.dataset import bundled_directory
    from sphinx_verl_resources.memory import architectures

    content = (bundled_directory().path / "architectures.yaml").read_bytes()
    assert validated(read_yaml(content), registries.ArchitectureFile)[1] == []
    wrong = read_yaml(content.replace(b"hf_id: ", b"hfid: x\n    hf_id: ", 1))
    assert validated(wrong, registries.ArchitectureFile)[1] == []
    (problem,) = validated(wrong, architectures.ArchitectureFile)[1]
    assert problem.code == "unknown_key"
    own, whole = (
        json.loads(schema_text(model))["definitions"]["Architecture"]["properties"]
        for model in (registries.ArchitectureFile, architectures.ArchitectureFile)
    )
    assert own.items() <= whole.items()
    assert all(field["description"] for field in whole.values())
