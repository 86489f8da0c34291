"""How fast the tables are, against the same tables typed by hand. Run by ``make benchmark``.

Every figure is the fastest of several whole ``sphinx-build`` processes, and every ratio compares processes
of this one run, so that the machine hardly matters.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from tabulate import tabulate

from sphinx_verl_resources.catalog.fields import PAGE_COLUMNS
from sphinx_verl_resources.catalog.files import bundled_directory, configured_directory, take_snapshot
from sphinx_verl_resources.catalog.links import Links
from sphinx_verl_resources.catalog.load import load_catalog
from sphinx_verl_resources.catalog.names import PAGE_SIZES
from sphinx_verl_resources.catalog.selection import RunQuery, select_runs
from sphinx_verl_resources.diagnostics import Location
from sphinx_verl_resources.render.runs import run_cell

RUN = """\
# yaml-language-server: $schema=../schema/run.json
id: {id}
size: {size}
tag: MIN
model: Qwen/Qwen2.5-7B-Instruct
task: GRPO-LoRA
gpus: {{count: {count}, type: H100}}
train: fsdp
infer: {{engine: vllm, version: "0.8.3"}}
max_batch: 16
script: {{ref: 2239fd0ff7210c80ad63e20581924d1f66167429, path: examples/tuning/7b/run-{id}.sh}}
contributor: {{name: Somebody, url: null}}
added: 2025-06-12
settings:
  data.train_batch_size: 16
  actor_rollout_ref.model.lora_rank: 32
"""
#: What verl's documentation switches on, see its docs/conf.py.
VERL_CONF = """\
extensions = [
    "myst_parser", "sphinx.ext.autodoc", "sphinx.ext.autosummary", "sphinx.ext.autosectionlabel",
    "sphinx.ext.napoleon", "sphinx.ext.viewcode",
]
html_theme = "sphinx_rtd_theme"
"""
#: A section of the pages around the table.
SECTION = """\
Section {number} of page {page}
---------------------------

A paragraph with *emphasis*, ``code`` and a `link <https://example.org/{page}/{number}>`__.

.. code-block:: python

   print({number})

- one item
- another item
"""


def make_data(folder: Path, count: int, sizes: tuple[str, ...] = ("7B",)) -> None:
    """Write ``count`` run files."""
    runs = folder / "runs"
    runs.mkdir(parents=True)
    for index in range(count):
        name = f"run-{index}"
        size = sizes[index % len(sizes)]
        (runs / f"{name}.yaml").write_text(RUN.format(id=name, size=size, count=index % 64 + 1), "utf-8")


def make_projects(
    folder: Path, data: Path, conf: str, directive: str, others: int = 0
) -> tuple[Path, Path, Path]:
    """A project without a table, one with typed tables, and one with ours, each among ``others`` pages."""
    snapshot = take_snapshot(
        bundled_directory(), [configured_directory(str(data), folder)], Location("benchmark")
    )
    catalog = load_catalog(snapshot)
    typed: list[str] = []
    for size in PAGE_SIZES:
        runs = select_runs(catalog, RunQuery((size,)))
        if runs:
            typed += ["", size, "-" * len(size), "", ".. list-table::", "   :header-rows: 1", ""]
            rows = [[f"{name}" for name in PAGE_COLUMNS]]
            for run in runs:
                cells = [run_cell(run, name, Links()).pieces[0] for name in PAGE_COLUMNS]
                rows.append(
                    [f"`{text} <{url}>`__" if url else text.replace("*", "\\*") for text, url in cells]
                )
            for row in rows:
                typed += [f"   {'* -' if index == 0 else '  -'} {text}" for index, text in enumerate(row)]
    ours = f'extensions += ["sphinx_verl_resources"]\nverl_resources_data = [{str(data)!r}]\n'
    return (
        _project(folder / "empty", conf, "", others),
        _project(folder / "typed", conf, "\n".join(typed), others),
        _project(folder / "ours", conf + ours, directive, others),
    )


def _project(folder: Path, conf: str, body: str, others: int) -> Path:
    folder.mkdir(parents=True)
    (folder / "conf.py").write_text(conf, "utf-8")
    contents = "\n".join([".. toctree::", "", *(f"   page-{index}" for index in range(others))])
    (folder / "index.rst").write_text(f"Page\n====\n\nSome text.\n\n{body}\n\n{contents}\n", "utf-8")
    for index in range(others):
        sections = "\n\n".join(SECTION.format(page=index, number=number) for number in range(5))
        (folder / f"page-{index}.rst").write_text(f"Page {index}\n==========\n\n{sections}\n", "utf-8")
    return folder


def fastest_builds(projects: tuple[Path, ...], repeat: int) -> list[float]:
    """Seconds of the fastest full build of each project; they take turns, so that drift hits all alike."""
    best = [float("inf")] * len(projects)
    # As an installed package has it: without byte code a build would compile the extension each time.
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    environment["PYTHONPYCACHEPREFIX"] = str(projects[0].parent / "bytecode")
    for _ in range(repeat):
        for index, project in enumerate(projects):
            command = [
                sys.executable,
                "-m",
                "sphinx",
                "-q",
                "-E",
                "-b",
                "html",
                str(project),
                str(project / "_build"),
            ]
            start = time.perf_counter()
            subprocess.run(command, check=True, env=environment)
            best[index] = min(best[index], time.perf_counter() - start)
    return best


def page_of(
    count: int, sizes: tuple[str, ...], conf: str, others: int, repeat: int
) -> tuple[float, float, float]:
    """Seconds without a table, with typed ones, and with ours."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        make_data(folder / "data", count, sizes)
        empty, typed, ours = fastest_builds(
            make_projects(folder, folder / "data", conf, ".. verl-runs::", others), repeat
        )
        return empty, typed, ours


def loading(count: int) -> float:
    """Seconds to load and validate ``count`` runs."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        make_data(folder / "data", count)
        start = time.perf_counter()
        snapshot = take_snapshot(
            bundled_directory(), [configured_directory(str(folder / "data"), folder)], Location("benchmark")
        )
        catalog = load_catalog(snapshot)
        elapsed = time.perf_counter() - start
        if len(catalog.runs) != count or catalog.diagnostics:
            raise SystemExit("the benchmark's own data are wrong")
        return elapsed


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--repeat", type=int, default=5, help="builds per figure (default: 5)")
    options = parser.parse_args()
    rows = []
    cases = (
        ("1,000 runs, plain Sphinx", 1000, ("7B",), "extensions = []\n", 0, "0.40"),
        ("12 runs, plain Sphinx", 12, PAGE_SIZES[:7], "extensions = []\n", 0, "1.05"),
        ("12 runs, verl's conf.py", 12, PAGE_SIZES[:7], VERL_CONF, 0, "1.05"),
        ("the same among 60 pages", 12, PAGE_SIZES[:7], VERL_CONF, 60, "1.05"),
    )
    for title, count, sizes, conf, others, target in cases:
        empty, typed, ours = page_of(count, sizes, conf, others, options.repeat)
        rows.append((title, f"{empty:.2f}", f"{typed:.2f}", f"{ours:.2f}", f"{ours / typed:.2f}", target))
    print(tabulate(rows, ("whole build, seconds", "no table", "typed", "ours", "ours/typed", "at most")))
    print(f"\nloading and validating 10,000 runs: {loading(10_000):.2f} s (at most 3)")


if __name__ == "__main__":
    main()
