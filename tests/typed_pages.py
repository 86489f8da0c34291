"""Create hand-typed pages with tables of runs, and read them."""

from __future__ import annotations

from pathlib import Path

from sphinx_verl_resources.catalog.files import DataFile
from sphinx_verl_resources.cli.data import read_data
from sphinx_verl_resources.intake.page import Known, read_page

FACTS = read_data([]).registries
KNOWN = Known(FACTS.gpus, FACTS.architectures)
COMMIT = "2239fd0ff7210c80ad63e20581924d1f66167429"
REPOSITORY = "https://github.com/verl-project/verl"
COLUMNS = {
    "Tag": "MIN", "Model": "Qwen2.5-7B-Instruct", "Task": "GRPO", "Resource": "2*H800", "MaxBatch": "16",
    "Train": "fsdp", "Infer": "vllm0.8.2", "Link": f"`a.sh <{REPOSITORY}/blob/{COMMIT}/examples/a.sh>`_",
    "Contributor": "Jane",
}  # fmt: skip


def read(text: str | bytes, known: Known = KNOWN):
    content = text if isinstance(text, bytes) else text.encode("utf-8", "surrogatepass")
    return read_page(DataFile(Path("page.rst"), "page.rst", content), known)


def listed(*rows, headings=COLUMNS) -> str:
    lines = [".. list-table::", "   :header-rows: 1", ""]
    for row in (headings, *rows):
        lines += [f"   {'  -' if index else '* -'} {cell}" for index, cell in enumerate(row)]
    return "\n".join(lines) + "\n"


def page_of(table: str, heading: str = "7B\n~~~") -> str:
    return f"Title\n=====\n\n{heading}\n\n{table}"
