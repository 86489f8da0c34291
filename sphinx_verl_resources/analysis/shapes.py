"""The model that an analysis is about: found by name, as the few numbers that the formulas take."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ..catalog.names import fold, nearest_size
from ..diagnostics import Code, Diagnostic, Location, NoAnswerError, did_you_mean, nearest

if TYPE_CHECKING:
    from ..catalog.analysis import Analysis
    from ..catalog.models.analysis import Assumptions, Specification
    from ..catalog.models.architecture import Architecture


class AnalysisError(NoAnswerError):
    """A question that the recorded analysis has no answer to; the text says what would have one."""

    def __init__(self, message: str, code: Code = Code.directive) -> None:
        super().__init__(Diagnostic(Location(""), code, message))


@dataclass(frozen=True)
class Shape:
    """What the formulas know about a model. Counts, not bytes.

    Attributes:
        name: as pages show it.
        checkpoint: the Hugging Face name of the model whose shape it is; empty for one given by numbers.
        attention_heads: 0 where none are recorded; no formula uses them, nor the vocabulary.
        gpus: the number of GPUs to share the model where nobody asks for another.
    """

    name: str
    checkpoint: str
    parameters: int
    hidden_size: int
    layers: int
    ffn_dimension: int
    attention_heads: int
    vocabulary_size: int
    gpus: int

    @property
    def hidden_size_share(self) -> float:
        """The hidden size as a share of what the stated rule gives."""
        return self.hidden_size / self.stated_hidden_size

    @property
    def implied_parameters(self) -> int:
        """Parameters of the layers by their shape: attention, and a feed-forward part of three matrices."""
        return self.layers * self.hidden_size * (4 * self.hidden_size + 3 * self.ffn_dimension)

    @property
    def stated_hidden_size(self) -> float:
        """The hidden size by the rule that the analysis states and does not keep to."""
        return math.sqrt(self.parameters / (12 * self.layers))


def assumptions_of(analysis: Analysis) -> Assumptions:
    """What every figure assumes.

    Raises:
        AnalysisError: one of them is recorded nowhere.
    """
    if analysis.assumptions is None:
        raise AnalysisError("an assumption is missing in analysis.yaml; the build log says which")
    return analysis.assumptions


def find_shape(analysis: Analysis, name: str) -> Shape:
    """The model called ``name``: a specification of the analysis, a checkpoint, or its short name.

    Raises:
        AnalysisError: there is none.
    """
    assumed = assumptions_of(analysis)
    for spec in analysis.specifications.values():
        if spec.name.casefold() == name.casefold():
            return _of_specification(analysis, spec, assumed)
    found = analysis.architectures.get(name)
    for entry in analysis.architectures:
        found = found or (entry if fold(name) in {fold(entry.name), fold(entry.hf_id)} else None)
    if found is None:
        code = Code.unknown_model if "/" in name else Code.unknown_size
        raise AnalysisError(f"there is no model {name!r}; {_hint(analysis, name)}", code)
    return _of_architecture(found, name if name in found.lookup_names else found.name, assumed.gpus)


def entry_of(analysis: Analysis, section: str, name: str) -> Any:
    """The entry of a section that is called ``name``, whatever the case.

    Raises:
        AnalysisError: there is none.
    """
    entries = getattr(analysis, section)
    for known, entry in entries.items():
        if known.casefold() == name.casefold():
            return entry
    message = f"nothing is recorded under {section!r} for {name!r}; {did_you_mean(name, entries)}"
    raise AnalysisError(message, Code.unknown_size)


def _of_specification(analysis: Analysis, spec: Specification, assumed: Assumptions) -> Shape:
    gpus = spec.gpus or assumed.gpus
    if spec.model:
        entry = analysis.architectures.get(spec.model)
        if entry is None:
            raise AnalysisError(
                f"{spec.name} stands for {spec.model!r}, which is not in architectures.yaml; add it"
            )
        return _of_architecture(entry, spec.name, gpus, spec.model)
    hidden_size = spec.hidden_size or 0
    return Shape(
        name=spec.name,
        checkpoint="",
        parameters=spec.parameters or 0,
        hidden_size=hidden_size,
        layers=spec.layers or 0,
        ffn_dimension=round(assumed.ffn_ratio * hidden_size),
        attention_heads=spec.attention_heads or 0,
        vocabulary_size=assumed.vocabulary_size,
        gpus=gpus,
    )


def _of_architecture(entry: Architecture, name: str, gpus: int, checkpoint: str = "") -> Shape:
    return Shape(
        name=name,
        checkpoint=checkpoint or entry.hf_id,
        parameters=entry.parameters,
        hidden_size=entry.hidden_size,
        layers=entry.num_hidden_layers,
        ffn_dimension=entry.intermediate_size or 0,
        attention_heads=entry.num_attention_heads,
        vocabulary_size=entry.vocab_size,
        gpus=gpus,
    )


def _hint(analysis: Analysis, name: str) -> str:
    listed = f"name one of {', '.join(analysis.specifications)}, or a checkpoint of architectures.yaml"
    size = nearest_size(name, analysis.specifications)
    if size:
        return f"the nearest is {size}; {listed}"
    near = nearest(name, [*analysis.specifications, *analysis.architectures.names])
    return f"did you mean {near!r}?" if near else listed
