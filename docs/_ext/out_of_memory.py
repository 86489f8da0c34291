"""``.. docs-diagnosis::`` and ``.. docs-changes:: PHASE``: the output of ``verl-resources diagnose``."""

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
from sphinx_verl_resources.settings.writing import overrides
from sphinx_verl_resources.sphinx_ext.domain import VerlDomain
from sphinx_verl_resources.views.diagnosis import diagnosis_text, effect_text
from sphinx_verl_resources.views.verdicts import as_title

if TYPE_CHECKING:
    from sphinx.application import Sphinx

    from sphinx_verl_resources.intake.diagnosis import Diagnosis
    from sphinx_verl_resources.intake.remedies import Advice

LOG = "examples/out-of-memory.log"
#: The number of changes shown for a phase; the command prints more.
MOST = 3


class ExampleDiagnosis(SphinxDirective):
    """The command's output for the example log."""

    def run(self) -> list[nodes.Node]:
        found = diagnose(_log(self), Given(gpus=(8, "H100")), VerlDomain.of(self.env).records)
        text = diagnosis_text(found, width=90)
        return [nodes.literal_block(text, text, language="text")]


class Changes(SphinxDirective):
    """The first changes for a phase of the example run, each with its effect."""

    required_arguments = 1
    option_spec: ClassVar[Any] = {"form": directives.unchanged, "frame": directives.unchanged}

    def run(self) -> list[nodes.Node]:
        phase, form = self.arguments[0], self.options.get("form", "cuda")
        failure = Failure(phase, "", form, Location(""), "", frame=self.options.get("frame", ""))
        log = LogText("", Figures(), _log(self).settings, failure=failure)
        found = diagnose(log, Given(gpus=(8, "H100")), VerlDomain.of(self.env).records)
        items = nodes.enumerated_list(enumtype="arabic", prefix="", suffix=".")
        items += [_item(found, each) for each in found.advice[:MOST]]
        self.set_source_info(items)
        return [items]


def _log(directive: SphinxDirective) -> LogText:
    path = Path(directive.env.srcdir) / LOG
    directive.env.note_dependency(str(path))
    return read_log([path.read_bytes()], LOG)


def _item(found: Diagnosis, each: Advice) -> nodes.list_item:
    text = nodes.paragraph()
    for setting in overrides(each.remedy.overrides):
        text += [nodes.literal(setting, setting), nodes.Text(" ")]
    effect = effect_text(found, each)
    text += nodes.Text(f"({effect})" if each.remedy.overrides else as_title(effect))
    return nodes.list_item("", text)


def setup(app: Sphinx) -> dict[str, Any]:
    app.add_directive("docs-diagnosis", ExampleDiagnosis)
    app.add_directive("docs-changes", Changes)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
