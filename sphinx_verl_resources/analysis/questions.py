"""The queries about the memory analysis."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ..diagnostics import Severity
from ..query import Answer, Query, digest, plain

if TYPE_CHECKING:
    from ..catalog.dataset import Dataset
    from ..catalog.models.analysis import Assumptions, Cause, Configuration, Remark, VerlState
    from ..catalog.models.registries import ConfigKey
    from .analysis import Outcome
    from .original import Comparison
    from .requirements import JudgedClaim


class AnalysisQuery(Query[Answer]):
    """A query that the analysis answers."""

    reads = frozenset({"analysis"})


class RecordsQuery(AnalysisQuery[Answer]):
    """A query whose answer is made of records and results, of which pages show every field."""

    def fingerprint(self, answer: Any) -> str:
        """Return a digest of all fields."""
        return digest(plain(answer))


@dataclass(frozen=True)
class FilesWithErrors(AnalysisQuery[tuple[str, ...]]):
    """The files of the analysis that have errors, as messages show them."""

    def answer(self, data: Dataset) -> tuple[str, ...]:
        """In the order of their paths."""
        found = (item for item in data.analysis.diagnostics if item.severity is Severity.ERROR)
        return tuple(dict.fromkeys(item.place.path for item in found))


@dataclass(frozen=True)
class Memory(RecordsQuery["Outcome"]):
    """Components and chain of one model; None stands for what is recorded."""

    name: str
    gpus: int | None = None
    batch_size: int | None = None
    sequence_length: int | None = None
    steps: tuple[str, ...] | None = None

    def answer(self, data: Dataset) -> Outcome:
        """See ``analysis.analyse``."""
        from .analysis import analyse

        return analyse(
            data.analysis,
            self.name,
            gpus=self.gpus,
            batch_size=self.batch_size,
            sequence_length=self.sequence_length,
            steps=self.steps,
        )


@dataclass(frozen=True)
class Value(AnalysisQuery[str]):
    """One figure, named in words."""

    text: str

    def answer(self, data: Dataset) -> str:
        """See ``values.value_text``."""
        from .values import value_text

        return value_text(data.analysis, self.text)


@dataclass(frozen=True)
class Names(AnalysisQuery[tuple[str, ...]]):
    """The names in a section of the analysis: of its steps, of the models that it records something of."""

    section: str

    def answer(self, data: Dataset) -> tuple[str, ...]:
        """In the order of the record."""
        return tuple(getattr(data.analysis, self.section))


@dataclass(frozen=True)
class IsName(AnalysisQuery[bool]):
    """Whether a text is the name of a specification, as a whole."""

    text: str

    def answer(self, data: Dataset) -> bool:
        """Whatever the case."""
        return self.text.casefold() in {name.casefold() for name in data.analysis.specifications}


@dataclass(frozen=True)
class OwnModels(AnalysisQuery[tuple[str, ...]]):
    """The models that the analysis gives figures of its own, and takes from no checkpoint."""

    def answer(self, data: Dataset) -> tuple[str, ...]:
        """In the order of the record."""
        return tuple(name for name, entry in data.analysis.specifications.items() if entry.model is None)


@dataclass(frozen=True)
class SharingSteps(AnalysisQuery[tuple[str, ...]]):
    """The steps that share something among the GPUs."""

    def answer(self, data: Dataset) -> tuple[str, ...]:
        """In the order of the record."""
        return tuple(name for name, step in data.analysis.steps.items() if step.divide_by == "gpus")


@dataclass(frozen=True)
class Entries(RecordsQuery[tuple[Any, ...]]):
    """All entries of a section, as recorded."""

    section: str

    def answer(self, data: Dataset) -> tuple[Any, ...]:
        """In the order of the record."""
        return tuple(getattr(data.analysis, self.section).values())


@dataclass(frozen=True)
class Assumed(RecordsQuery["Assumptions"]):
    """What every figure assumes."""

    def answer(self, data: Dataset) -> Assumptions:
        """As recorded."""
        from .model_shape import assumptions_of

        return assumptions_of(data.analysis)


@dataclass(frozen=True)
class AsPrinted(RecordsQuery["tuple[tuple[Comparison, ...], tuple[Cause, ...]]"]):
    """Every figure that was printed of one model, and the causes that they name."""

    name: str

    def answer(self, data: Dataset) -> tuple[tuple[Comparison, ...], tuple[Cause, ...]]:
        """See ``original.compare``."""
        from .model_shape import entry_of
        from .original import analysis_behind, compare

        printed = entry_of(data.analysis, "printed", self.name)
        found = compare(analysis_behind(data.analysis, printed), printed)
        named = {code for item in found for code in (*item.causes, *item.carried)}
        return found, tuple(cause for code, cause in data.analysis.causes.items() if code in named)


@dataclass(frozen=True)
class Required(RecordsQuery["tuple[JudgedClaim, ...]"]):
    """What the requirement lists claim about one model, judged."""

    name: str

    def answer(self, data: Dataset) -> tuple[JudgedClaim, ...]:
        """See ``requirements.judge``."""
        from .model_shape import entry_of
        from .requirements import judge

        return judge(data.analysis, entry_of(data.analysis, "requirements", self.name))


@dataclass(frozen=True)
class Configured(RecordsQuery["tuple[Configuration, tuple[ConfigKey | None, ...]]"]):
    """The settings recommended for one model, and what is known of each key."""

    name: str

    def answer(self, data: Dataset) -> tuple[Configuration, tuple[ConfigKey | None, ...]]:
        """The record, and an entry or None for each of its keys."""
        from .model_shape import entry_of

        record = entry_of(data.analysis, "configurations", self.name)
        return record, tuple(data.analysis.config_keys.get(key) for key in record.settings)


@dataclass(frozen=True)
class KeyProblem(AnalysisQuery["tuple[str, str] | None"]):
    """What is wrong with a key of verl's configuration."""

    key: str

    def answer(self, data: Dataset) -> tuple[str, str] | None:
        """Message and hint, or None."""
        from ..catalog.analysis import key_problem

        return key_problem(data.analysis.config_keys, self.key)


@dataclass(frozen=True)
class RemarksOn(RecordsQuery["tuple[tuple[Remark, ...], VerlState | None]"]):
    """Where verl works differently from what is said about any of ``subjects``, and as of when."""

    subjects: tuple[str, ...]

    def answer(self, data: Dataset) -> tuple[tuple[Remark, ...], VerlState | None]:
        """In the order of the record."""
        wanted = set(self.subjects)
        found = (remark for remark in data.analysis.remarks.values() if wanted.intersection(remark.about))
        return tuple(found), data.analysis.verl
