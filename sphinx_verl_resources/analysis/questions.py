"""What pages ask of the analysis. A question is a plain value; its answer is computed from what is recorded.

Questions are kept between builds, and a page is read again when the answer to one of its own has changed.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ..diagnostics import Severity
from .question import Question

if TYPE_CHECKING:
    from ..catalog.analysis import Analysis
    from ..catalog.models.analysis import Assumptions, Cause, Configuration, Remark, VerlState
    from ..catalog.models.config_key import ConfigKey
    from .analysis import Outcome
    from .printed import Comparison
    from .requirements import Verdict


@dataclass(frozen=True)
class FilesWithErrors(Question[tuple[str, ...]]):
    """The files of the analysis that have errors, as messages show them."""

    def answer(self, analysis: Analysis) -> tuple[str, ...]:
        """In the order of their paths."""
        found = (item for item in analysis.diagnostics if item.severity is Severity.ERROR)
        return tuple(dict.fromkeys(item.place.path for item in found))


@dataclass(frozen=True)
class Memory(Question["Outcome"]):
    """Components and chain of one model; None stands for what is recorded."""

    name: str
    gpus: int | None = None
    batch_size: int | None = None
    sequence_length: int | None = None
    steps: tuple[str, ...] | None = None

    def answer(self, analysis: Analysis) -> Outcome:
        """See ``analysis.analyse``."""
        from .analysis import analyse

        return analyse(
            analysis,
            self.name,
            gpus=self.gpus,
            batch_size=self.batch_size,
            sequence_length=self.sequence_length,
            steps=self.steps,
        )


@dataclass(frozen=True)
class Value(Question[str]):
    """One figure, named in words."""

    text: str

    def answer(self, analysis: Analysis) -> str:
        """See ``values.value_text``."""
        from .values import value_text

        return value_text(analysis, self.text)


@dataclass(frozen=True)
class Names(Question[tuple[str, ...]]):
    """The names in a section of the analysis: of its steps, of the models that it records something of."""

    section: str

    def answer(self, analysis: Analysis) -> tuple[str, ...]:
        """In the order of the record."""
        return tuple(getattr(analysis, self.section))


@dataclass(frozen=True)
class IsName(Question[bool]):
    """Whether a text is the name of a specification, as a whole."""

    text: str

    def answer(self, analysis: Analysis) -> bool:
        """Whatever the case."""
        return self.text.casefold() in {name.casefold() for name in analysis.specifications}


@dataclass(frozen=True)
class OwnModels(Question[tuple[str, ...]]):
    """The models that the analysis gives figures of its own, and takes from no checkpoint."""

    def answer(self, analysis: Analysis) -> tuple[str, ...]:
        """In the order of the record."""
        return tuple(name for name, entry in analysis.specifications.items() if entry.model is None)


@dataclass(frozen=True)
class SharingSteps(Question[tuple[str, ...]]):
    """The steps that share something among the GPUs."""

    def answer(self, analysis: Analysis) -> tuple[str, ...]:
        """In the order of the record."""
        return tuple(name for name, step in analysis.steps.items() if step.divide_by == "gpus")


@dataclass(frozen=True)
class Entries(Question[tuple[Any, ...]]):
    """All entries of a section, as recorded."""

    section: str

    def answer(self, analysis: Analysis) -> tuple[Any, ...]:
        """In the order of the record."""
        return tuple(getattr(analysis, self.section).values())


@dataclass(frozen=True)
class Assumed(Question["Assumptions"]):
    """What every figure assumes."""

    def answer(self, analysis: Analysis) -> Assumptions:
        """As recorded."""
        from .shapes import assumptions_of

        return assumptions_of(analysis)


@dataclass(frozen=True)
class AsPrinted(Question["tuple[tuple[Comparison, ...], tuple[Cause, ...]]"]):
    """Every figure that was printed of one model, and the causes that they name."""

    name: str

    def answer(self, analysis: Analysis) -> tuple[tuple[Comparison, ...], tuple[Cause, ...]]:
        """See ``printed.compare``."""
        from .printed import compare, printed_under
        from .shapes import entry_of

        printed = entry_of(analysis, "printed", self.name)
        found = compare(printed_under(analysis, printed), printed)
        named = {code for item in found for code in (*item.causes, *item.carried)}
        return found, tuple(cause for code, cause in analysis.causes.items() if code in named)


@dataclass(frozen=True)
class Required(Question["tuple[Verdict, ...]"]):
    """What the requirement lists claim about one model, judged."""

    name: str

    def answer(self, analysis: Analysis) -> tuple[Verdict, ...]:
        """See ``requirements.judge``."""
        from .requirements import judge
        from .shapes import entry_of

        return judge(analysis, entry_of(analysis, "requirements", self.name))


@dataclass(frozen=True)
class Configured(Question["tuple[Configuration, tuple[ConfigKey | None, ...]]"]):
    """The settings recommended for one model, and what is known of each key."""

    name: str

    def answer(self, analysis: Analysis) -> tuple[Configuration, tuple[ConfigKey | None, ...]]:
        """The record, and an entry or None for each of its keys."""
        from .shapes import entry_of

        record = entry_of(analysis, "configurations", self.name)
        return record, tuple(analysis.config_keys.get(key) for key in record.settings)


@dataclass(frozen=True)
class KeyProblem(Question["tuple[str, str] | None"]):
    """What is wrong with a key of verl's configuration."""

    key: str

    def answer(self, analysis: Analysis) -> tuple[str, str] | None:
        """Message and hint, or None."""
        from ..catalog.analysis_checks import key_problem

        return key_problem(analysis.config_keys, self.key)


@dataclass(frozen=True)
class RemarksOn(Question["tuple[tuple[Remark, ...], VerlState | None]"]):
    """Where verl works differently from what is said about any of ``subjects``, and as of when."""

    subjects: tuple[str, ...]

    def answer(self, analysis: Analysis) -> tuple[tuple[Remark, ...], VerlState | None]:
        """In the order of the record."""
        wanted = set(self.subjects)
        found = (remark for remark in analysis.remarks.values() if wanted.intersection(remark.about))
        return tuple(found), analysis.verl
