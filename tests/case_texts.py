"""Read files of cases from texts."""

from __future__ import annotations

from pathlib import Path

from sphinx_verl_resources.dataset import DataFile
from sphinx_verl_resources.memory.cases import load_cases

GOOD = "- {id: good, model: Qwen/Qwen2.5-7B, config: {}}\n"


def read(text: str, name: str = "cases/a.yaml"):
    return load_cases([DataFile(Path(name), name, text.encode())])
