"""``.. verl-lengths::``: one run with increasing response lengths."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...catalog.names import LIMITS
from ...i18n import _
from ...views.blocks import legend
from .base import ABOUT_TABLE
from .computed import SettingsDirective
from .options import Option, numbers, resource

if TYPE_CHECKING:
    from docutils import nodes


DEFAULT_RESPONSES = (1024, 2048, 4096, 8192, 16384, 32768)
LENGTHS_OPTIONS = (
    Option(
        "model",
        "Model. Required. Write verl's settings below the options.",
        "Hugging Face name",
        needed="set a model, as in :model: Qwen/Qwen2.5-7B-Instruct",
    ),
    Option("gpus", "Number and type of GPUs. Required.", "count and name, such as ``8*H100``", read=resource),
    Option(
        "responses",
        "Maximum response lengths, in tokens.",
        "numbers, separated by spaces or commas",
        f"``{' '.join(map(str, DEFAULT_RESPONSES))}``",
        numbers(LIMITS["sequence-length"]),
        DEFAULT_RESPONSES,
    ),
    *ABOUT_TABLE,
)


class VerlLengths(SettingsDirective):
    """One run with increasing response lengths."""

    directive = "verl-lengths"
    takes = LENGTHS_OPTIONS
    instead_of_argument = "set the model in :model:"

    def show(self) -> list[nodes.Node]:
        """Return the table and its legend."""
        from ...estimator.queries import Lengths, ModelEstimate
        from ...estimator.sweeps import RESPONSE
        from ...views.estimate import length_rows

        count, gpu = self.named_gpus()
        settings = self.settings()
        if RESPONSE in dict(settings):
            self.refuse(f"{RESPONSE} differs between the rows", "set the lengths with :responses:")
        if self.problems:
            return []
        model = self.values["model"]
        rows = self.ask(Lengths(ModelEstimate(model, count, gpu, settings), self.values["responses"]))
        if all(row.estimate is None for row in rows):
            self.note_all(rows[0].diagnostics)
            return []
        caption = _("{model} on {gpus}: longer responses").format(model=model, gpus=f"{count}×{gpu}")
        table = self.table(length_rows(rows), caption)
        text = _(
            "Figures are for the fullest GPU. By default the token budget holds exactly one sequence. The KV "
            "cache is that of one rollout engine with full-length sequences. With fewer sequences at a time, "
            "the rollout is slower but needs no extra memory."
        )
        return [table, legend(text)]
