"""``.. verl-published::`` and ``.. verl-requirements::``: what was printed, beside what is computed."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from docutils import nodes

from ...analysis.questions import AsPrinted, Assumed, Names, Required
from ...catalog.names import REQUIREMENTS
from ...i18n import _
from ...views.original import (
    ORIGINAL_CLASS,
    REQUIREMENTS_CLASS,
    cause_list,
    original_rows,
    requirement_legend,
    requirement_rows,
)
from . import options
from .analysis import WITHOUT_REMARKS, AnalysisDirective
from .base import free_id

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ...catalog.models.analysis import Cause


class VerlPublished(AnalysisDirective):
    """A table for each model, and the causes of all differences."""

    option_spec: ClassVar[options.AnyOption] = options.AnyOption.of()

    def show(self, given: Mapping[str, str], problems: options.Problems) -> list[nodes.Node]:
        """Tables, then causes."""
        answers = []
        for name in self.models(Names("printed")):
            with problems.noted():
                answers.append((name, *self.ask(AsPrinted(name))))
        if problems:
            return []
        causes: dict[str, Cause] = {cause.name: cause for answer in answers for cause in answer[-1]}
        targets = {code: nodes.target() for code in causes}
        for code, target in targets.items():
            target["ids"] = [free_id(nodes.make_id(f"verl-cause-{code}"), target, self.state.document)]
        anchors = {code: target["ids"][0] for code, target in targets.items()}
        tables: list[nodes.Node] = [
            self.table(
                ORIGINAL_CLASS,
                original_rows(found, anchors),
                _("{model}, as printed").format(model=name),
                with_options=False,
            )
            for name, found, _causes in answers
        ]
        return [*tables, cause_list(causes.values(), targets)] if causes else tables


class VerlRequirements(AnalysisDirective):
    """A table of verdicts for each model."""

    option_spec: ClassVar[options.AnyOption] = options.AnyOption.of(WITHOUT_REMARKS)

    def show(self, given: Mapping[str, str], problems: options.Problems) -> list[nodes.Node]:
        """One table a model, what the columns are, and remarks."""
        answers = []
        for name in self.models(Names("requirements")):
            with problems.noted():
                answers.append((name, self.ask(Required(name))))
        if problems:
            return []
        marks, remarks = self.remarks([REQUIREMENTS])
        tables: list[nodes.Node] = [
            self.table(
                REQUIREMENTS_CLASS,
                requirement_rows(verdicts, marks.get(REQUIREMENTS, ())),
                _("{model}: how many GPUs").format(model=name),
                with_options=False,
            )
            for name, verdicts in answers
        ]
        legend = requirement_legend(self.ask(Assumed()).memory_limit)
        return [legend, *tables, *remarks]
