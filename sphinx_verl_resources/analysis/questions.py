"""The queries about the memory analysis."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

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
    """A query whose answer holds records and results; pages show every field of them."""

    def fingerprint(self, answer: Any) -> str:
        """Return a digest of all fields."""
        return digest(plain(answer))


@dataclass(frozen=True)
class FilesWithErrors(AnalysisQuery[tuple[str, ...]]):
    """The files of the analysis that have errors, as messages show them."""

    def answer(self, data: Dataset) -> tuple[str, ...]:
        """Return the paths in their order."""
        errors = (item for item in data.analysis.diagnostics if item.is_error)
        return tuple(dict.fromkeys(item.place.path for item in errors))


@dataclass(frozen=True)
class Memory(RecordsQuery["Outcome"]):
    """Components and chain of one model; None: as recorded."""

    name: str
    gpus: int | None = None
    batch_size: int | None = None
    sequence_length: int | None = None
    steps: tuple[str, ...] | None = None

    def answer(self, data: Dataset) -> Outcome:
        """Return the outcome of ``analysis.analyse``."""
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
    """One figure by its name."""

    text: str

    def answer(self, data: Dataset) -> str:
        """Return the text of ``values.value_text``."""
        from .values import value_text

        return value_text(data.analysis, self.text)


@dataclass(frozen=True)
class Names(AnalysisQuery[tuple[str, ...]]):
    """The names in a section of the analysis: of steps, or of models."""

    section: str

    def answer(self, data: Dataset) -> tuple[str, ...]:
        """Return them in the order of the record."""
        return tuple(getattr(data.analysis, self.section))


@dataclass(frozen=True)
class IsName(AnalysisQuery[bool]):
    """The question whether the whole of a text is the name of a specification."""

    text: str

    def answer(self, data: Dataset) -> bool:
        """Return whether there is one, in any case of letters."""
        return self.text.casefold() in {name.casefold() for name in data.analysis.specifications}


@dataclass(frozen=True)
class OwnModels(AnalysisQuery[tuple[str, ...]]):
    """The models whose figures are given by the analysis, and not by a checkpoint."""

    def answer(self, data: Dataset) -> tuple[str, ...]:
        """Return them in the order of the record."""
        return tuple(name for name, entry in data.analysis.specifications.items() if entry.model is None)


@dataclass(frozen=True)
class SharingSteps(AnalysisQuery[tuple[str, ...]]):
    """The steps that share something among the GPUs."""

    def answer(self, data: Dataset) -> tuple[str, ...]:
        """Return them in the order of the record."""
        return tuple(name for name, step in data.analysis.steps.items() if step.divide_by == "gpus")


@dataclass(frozen=True)
class Entries(RecordsQuery[tuple[Any, ...]]):
    """All entries of a section, as recorded."""

    section: str

    def answer(self, data: Dataset) -> tuple[Any, ...]:
        """Return them in the order of the record."""
        return tuple(getattr(data.analysis, self.section).values())


@dataclass(frozen=True)
class Assumed(RecordsQuery["Assumptions"]):
    """The assumptions of every figure."""

    def answer(self, data: Dataset) -> Assumptions:
        """Return the recorded assumptions."""
        from .model_shape import assumptions_of

        return assumptions_of(data.analysis)


@dataclass(frozen=True)
class OriginalFigures(RecordsQuery["tuple[tuple[Comparison, ...], tuple[Cause, ...]]"]):
    """The figures of the original document for one model, and the causes that they name."""

    name: str

    def answer(self, data: Dataset) -> tuple[tuple[Comparison, ...], tuple[Cause, ...]]:
        """Return the result of ``original.compare``, with the causes."""
        from .model_shape import entry_of
        from .original import analysis_behind, compare

        original = entry_of(data.analysis, "printed", self.name)
        figures = compare(analysis_behind(data.analysis, original), original)
        named = {code for item in figures for code in (*item.causes, *item.carried)}
        return figures, tuple(cause for code, cause in data.analysis.causes.items() if code in named)


@dataclass(frozen=True)
class Required(RecordsQuery["tuple[JudgedClaim, ...]"]):
    """The judged claims of the requirement lists about one model."""

    name: str

    def answer(self, data: Dataset) -> tuple[JudgedClaim, ...]:
        """Return the claims from ``requirements.judge``."""
        from .model_shape import entry_of
        from .requirements import judge

        return judge(data.analysis, entry_of(data.analysis, "requirements", self.name))


@dataclass(frozen=True)
class Configured(RecordsQuery["tuple[Configuration, tuple[ConfigKey | None, ...]]"]):
    """The recommended settings for one model, and the known facts of each key."""

    name: str

    def answer(self, data: Dataset) -> tuple[Configuration, tuple[ConfigKey | None, ...]]:
        """Return the record, and an entry or None for each of its keys."""
        from .model_shape import entry_of

        record = entry_of(data.analysis, "configurations", self.name)
        return record, tuple(data.analysis.config_keys.get(key) for key in record.settings)


@dataclass(frozen=True)
class KeyProblem(AnalysisQuery["tuple[str, str] | None"]):
    """The problem of a key of verl's configuration, if it has one."""

    key: str

    def answer(self, data: Dataset) -> tuple[str, str] | None:
        """Return message and remedy, or None."""
        from ..catalog.analysis import key_problem

        return key_problem(data.analysis.config_keys, self.key)


@dataclass(frozen=True)
class RemarksOn(RecordsQuery["tuple[tuple[Remark, ...], VerlState | None]"]):
    """The remarks about any of ``subjects``, and the state of verl that they describe."""

    subjects: tuple[str, ...]

    def answer(self, data: Dataset) -> tuple[tuple[Remark, ...], VerlState | None]:
        """Return them in the order of the record."""
        wanted = set(self.subjects)
        remarks = (item for item in data.analysis.remarks.values() if wanted.intersection(item.about))
        return tuple(remarks), data.analysis.verl
