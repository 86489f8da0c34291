"""The model of an analysis, as the few numbers that the formulas use."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ..catalog.names import fold, nearest_size
from ..diagnostics import Code, NoAnswerError, did_you_mean, nearest

if TYPE_CHECKING:
    from ..catalog.analysis import Analysis
    from ..catalog.models.analysis import Assumptions, Specification
    from ..catalog.models.architecture import Architecture


@dataclass(frozen=True)
class ModelShape:
    """The numbers of a model that the formulas use. Counts, not bytes.

    Attributes:
        name: as pages show it.
        checkpoint: the Hugging Face name of the model whose shape it is; empty for one given by numbers.
        attention_heads: 0 where none are recorded; no formula uses them, nor the vocabulary.
        gpus: the default number of GPUs that share the model.
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
        """Return the hidden size as a share of what the stated rule gives."""
        return self.hidden_size / self.stated_hidden_size

    @property
    def implied_parameters(self) -> int:
        """Return the parameters of all layers: attention, and a feed-forward part of three matrices."""
        return self.layers * self.hidden_size * (4 * self.hidden_size + 3 * self.ffn_dimension)

    @property
    def stated_hidden_size(self) -> float:
        """Return the hidden size by the rule that the document states and does not follow."""
        return math.sqrt(self.parameters / (12 * self.layers))


def assumptions_of(analysis: Analysis) -> Assumptions:
    """Return the assumptions of every figure.

    Raises:
        NoAnswerError: one of them is recorded nowhere.
    """
    if analysis.assumptions is None:
        raise NoAnswerError.because("an assumption is missing in analysis.yaml", "the build log says which")
    return analysis.assumptions


def find_shape(analysis: Analysis, name: str) -> ModelShape:
    """Find a specification of the analysis, or a checkpoint by its full or short name.

    Raises:
        NoAnswerError: there is none.
    """
    assumed = assumptions_of(analysis)
    for spec in analysis.specifications.values():
        if spec.name.casefold() == name.casefold():
            return _of_specification(analysis, spec, assumed)
    entry = analysis.architectures.get(name) or next(
        (entry for entry in analysis.architectures if fold(name) in {fold(entry.name), fold(entry.hf_id)}),
        None,
    )
    if entry is None:
        code = Code.unknown_model if "/" in name else Code.unknown_size
        raise NoAnswerError.because(f"there is no model {name!r}", _hint(analysis, name), code=code)
    return _of_architecture(entry, name if name in entry.lookup_names else entry.name, assumed.gpus)


def entry_of(analysis: Analysis, section: str, name: str) -> Any:
    """Return the entry of a section by its name, in any case of letters.

    Raises:
        NoAnswerError: there is none.
    """
    entries = getattr(analysis, section)
    for known, entry in entries.items():
        if known.casefold() == name.casefold():
            return entry
    message = f"nothing is recorded under {section!r} for {name!r}"
    raise NoAnswerError.because(message, did_you_mean(name, entries), code=Code.unknown_size)


def _of_specification(analysis: Analysis, spec: Specification, assumed: Assumptions) -> ModelShape:
    gpus = spec.gpus or assumed.gpus
    if spec.model:
        entry = analysis.architectures.get(spec.model)
        if entry is None:
            raise NoAnswerError.because(
                f"{spec.model!r}, the model of {spec.name}, is not in architectures.yaml", "add it"
            )
        return _of_architecture(entry, spec.name, gpus, spec.model)
    hidden_size = spec.hidden_size or 0
    return ModelShape(
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


def _of_architecture(entry: Architecture, name: str, gpus: int, checkpoint: str = "") -> ModelShape:
    return ModelShape(
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
