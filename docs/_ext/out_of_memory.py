"""``.. docs-diagnosis::`` and ``.. docs-changes:: PHASE``: what ``verl-resources diagnose`` says."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from docutils import nodes
from docutils.parsers.rst import directives
from sphinx.util.docutils import SphinxDirective

from sphinx_verl_resources.diagnostics import Location
from sphinx_verl_resources.intake.diagnosis import Given, diagnose
from sphinx_verl_resources.intake.failure import Failure
from sphinx_verl_resources.intake.log import LogText, read_log
from sphinx_verl_resources.intake.log_facts import Figures
from sphinx_verl_resources.intake.remedies import size_in
from sphinx_verl_resources.settings.writing import overrides
from sphinx_verl_resources.sphinx_ext.domain import VerlDomain
from sphinx_verl_resources.units import gib_number
from sphinx_verl_resources.views.diagnosis import WITHOUT_FIGURES, diagnosis_text
from sphinx_verl_resources.views.table import Cell, empty_table, table_group

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sphinx.application import Sphinx

    from sphinx_verl_resources.intake.diagnosis import Diagnosis
    from sphinx_verl_resources.intake.remedies import Advice

LOG = "examples/out-of-memory.log"


class ExampleDiagnosis(SphinxDirective):
    """What the command prints about the example log."""

    def run(self) -> list[nodes.Node]:
        found = diagnose(_log(self), Given(gpus=(8, "H100")), VerlDomain.of(self.env).records)
        text = diagnosis_text(found, width=90)
        return [nodes.literal_block(text, text, language="text")]


class Changes(SphinxDirective):
    """What to change when a phase of the example run fails, in order, with what each change leaves."""

    required_arguments = 1
    option_spec: ClassVar[Any] = {"form": directives.unchanged, "frame": directives.unchanged}

    def run(self) -> list[nodes.Node]:
        phase, form = self.arguments[0], self.options.get("form", "cuda")
        failure = Failure(phase, "", form, Location(""), "", frame=self.options.get("frame", ""))
        log = LogText("", Figures(), _log(self).settings, failure=failure)
        found = diagnose(log, Given(gpus=(8, "H100")), VerlDomain.of(self.env).records)
        table = empty_table("docs-changes")
        table += table_group(
            ("Change", "What it does", "GiB before", "GiB after", "Time"), list(_rows(found))
        )
        self.set_source_info(table)
        return [table]


def _log(directive: SphinxDirective) -> LogText:
    path = Path(directive.env.srcdir) / LOG
    directive.env.note_dependency(str(path))
    return read_log([path.read_bytes()], LOG)


def _rows(found: Diagnosis) -> Iterator[list[Cell]]:
    for each in found.advice:
        settings = " ".join(overrides(each.remedy.overrides))
        yield [
            Cell.path(settings) if settings else Cell.of(""),
            Cell.of(each.remedy.text),
            *_figures(found, each),
            Cell.of(each.remedy.cost),
        ]


def _figures(found: Diagnosis, each: Advice) -> tuple[Cell, Cell]:
    if not (found.failure and found.estimate and each.after) or found.failure.phase in WITHOUT_FIGURES:
        return Cell.of(""), Cell.of("")
    before, after = size_in(found.estimate, found.failure), size_in(each.after, found.failure)
    return Cell.number(gib_number(before)), Cell.number(gib_number(after))


def setup(app: Sphinx) -> dict[str, Any]:
    app.add_directive("docs-diagnosis", ExampleDiagnosis)
    app.add_directive("docs-changes", Changes)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
