"""Read files of cases from texts."""

from __future__ import annotations

from pathlib import Path

from sphinx_verl_resources.catalog.cases import load_cases
from sphinx_verl_resources.catalog.files import DataFile

GOOD = "- {id: good, model: Qwen/Qwen2.5-7B, config: {}}\n"


def read(text: str, name: str = "cases/a.yaml"):
    return load_cases([DataFile(Path(name), name, text.encode())])
