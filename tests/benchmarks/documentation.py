"""Documentation of the size of verl's, without our tables and with them on four pages."""

from __future__ import annotations

import shutil
from functools import partial
from typing import TYPE_CHECKING

from builds import build, kept_mib
from measurement import Measurement, fastest, seconds
from peers import NOTHING, OURS

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

PAGES, REPEAT = 150, 3
#: Extensions of verl's documentation, from its docs/conf.py.
CONF = """\
extensions = [
    "myst_parser", "sphinx.ext.autodoc", "sphinx.ext.autosummary", "sphinx.ext.autosectionlabel",
    "sphinx.ext.napoleon", "sphinx.ext.viewcode",
]
html_theme = "sphinx_rtd_theme"
suppress_warnings = ["autosectionlabel.*"]
"""
CONF_OF_OURS = 'extensions += ["sphinx_verl_resources"]\n'
#: The content of the pages that use the extension.
USES = (
    ".. verl-runs::",
    ".. verl-memory:: 8B\n\n.. verl-memory-summary::",
    ".. verl-memory::\n   :run: qwen2-5-7b-grpo-lora-1xh100",
    ".. verl-requirements::",
)
#: A section of 14 lines; the pages of verl's documentation have about 150 lines on average.
SECTION = """\
Section {number} of page {page}
---------------------------

A paragraph with *emphasis*, ``code``, a `link <https://example.org/{page}/{number}>`__ and some more words
about the trainer, the rollout and the way that weights take between them.

.. code-block:: python

   trainer = Trainer(config, number={number})
   trainer.fit()

- one item
- another item
"""


def write_documentation(folder: Path, *, ours: bool) -> Path:
    """Write a project with or without the content of ``USES``."""
    folder.mkdir(parents=True)
    (folder / "conf.py").write_text(CONF + (CONF_OF_OURS if ours else ""), "utf-8")
    names = [f"page-{index}" for index in range(PAGES)]
    contents = "\n".join(f"   {name}" for name in names)
    (folder / "index.rst").write_text(f"Index\n=====\n\n.. toctree::\n\n{contents}\n", "utf-8")
    for index, name in enumerate(names):
        parts = [f"Page {index}\n==========\n"]
        parts += [SECTION.format(page=index, number=number) for number in range(10)]
        parts += USES[index : index + 1] if ours else []
        (folder / f"{name}.rst").write_text("\n\n".join(parts) + "\n", "utf-8")
    return folder


def measure(folder: Path) -> Iterator[Measurement]:
    """Measure both projects, with HTML in one process."""
    projects = {
        name: write_documentation(folder / name, ours=ours)
        for name, ours in {NOTHING.name: False, OURS.name: True}.items()
    }
    builds = {name: partial(build, project, folder / "bytecode") for name, project in projects.items()}
    for name, found in fastest(builds, REPEAT).items():
        kept = kept_mib(projects[name])
        yield Measurement("documentation", name, seconds(found), 0, PAGES, 1, found.peak_mib, kept)
    for project in projects.values():
        shutil.rmtree(project)
