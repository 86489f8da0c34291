"""What a page can use of the data and of conf.py: plain questions, which it keeps from build to build."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ..analysis.question import Question
from ..estimator.question import EstimatorQuestion

if TYPE_CHECKING:
    from ..catalog.selection import RunQuery


@dataclass(frozen=True)
class RunsUse:
    """A page shows runs."""

    query: RunQuery


@dataclass(frozen=True)
class KnownUse:
    """A page names a value of a filter, or a setting, that the data know or do not know.

    Attributes:
        name: a name in ``selection.FILTERS``, or ``settings``.
        value: what the page names.
    """

    name: str
    value: str


@dataclass(frozen=True)
class FigureUse:
    """A page shows one figure about the data."""

    name: str


@dataclass(frozen=True)
class ConfigUse:
    """A page shows something that a value of conf.py decides."""

    name: str


@dataclass(frozen=True)
class ObjectUse:
    """A page refers to a run, a GPU, a model or a size class, on whatever page it stands.

    Attributes:
        kind: one of ``objects.KINDS``.
        name: as the page writes it.
        target: the name under which it is recorded, or else ``name``.
    """

    kind: str
    name: str
    target: str


@dataclass(frozen=True)
class EntriesUse:
    """A page lists entries of a registry.

    Attributes:
        kind: ``objects.GPU`` or ``objects.MODEL``.
        names: of the entries, by any of their names; all of them if empty.
    """

    kind: str
    names: tuple[str, ...] = ()


@dataclass(frozen=True)
class ExtensionUse:
    """A page has a directive or role, whatever it says.

    The next version may understand it differently, and the project may word differently what it makes.
    """


#: Questions about the memory analysis and about the estimator.
Asked = Question[Any] | EstimatorQuestion[Any]
#: These, and questions about the runs, about the registries, about conf.py and about the extension itself.
Use = RunsUse | KnownUse | FigureUse | ConfigUse | ObjectUse | EntriesUse | ExtensionUse | Asked
