"""``.. verl-lengths::``: what longer responses take."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from docutils import nodes

from ...i18n import _
from ..domain import VerlDomain
from . import options
from .base import ABOUT_TABLE
from .estimate import named_gpus
from .options import Option, OptionError
from .settings import SettingsDirective

if TYPE_CHECKING:
    from collections.abc import Mapping

DEFAULT_RESPONSES = (1024, 2048, 4096, 8192, 16384, 32768)
MOST_TOKENS = 10_000_000
OPTIONS = (
    Option("model", "The checkpoint. Required. Settings stand below the options.", "Hugging Face name"),
    Option("gpus", "How many GPUs and which. Required.", "count and name, such as ``8*H100``"),
    Option(
        "responses",
        "Limits of the responses, in tokens.",
        "numbers, separated by spaces or commas",
        f"``{' '.join(map(str, DEFAULT_RESPONSES))}``",
    ),
    *ABOUT_TABLE,
)


class VerlLengths(SettingsDirective):
    """One run with longer and longer responses."""

    option_spec: ClassVar[options.AnyOption] = options.AnyOption.of(*OPTIONS)

    def show(self, given: Mapping[str, str], problems: options.Problems) -> list[nodes.Node]:
        """The table, and what was computed."""
        from ...estimator.lengths import RESPONSE
        from ...estimator.questions import Lengths, ModelEstimate
        from ...views import lengths as render

        count, gpu = 0, ""
        responses: tuple[int, ...] = DEFAULT_RESPONSES
        with problems.noted():
            if self.arguments:
                raise OptionError("the directive takes no argument; name the checkpoint under :model:")
        with problems.noted():
            if "model" not in given:
                raise OptionError("name a checkpoint, as in :model: Qwen/Qwen2.5-7B-Instruct")
        with problems.noted():
            count, gpu = named_gpus(VerlDomain.of(self.env), given)
        with problems.noted():
            responses = options.count_list(given, "responses", MOST_TOKENS) or DEFAULT_RESPONSES
        body = self.settings(problems)
        if RESPONSE in dict(body.config):
            hint = "name the lengths under :responses:"
            problems.append(OptionError(f"{RESPONSE} is what the rows differ in; {hint}"))
        if problems:
            return []
        model = given["model"].strip()
        rows = self.ask(Lengths(ModelEstimate(model, count, gpu, body.config), responses))
        if all(row.estimate is None for row in rows):
            self.note_problems(rows[0].diagnostics, body, problems)
            return []
        caption = _("{model} on {gpus}: longer responses").format(model=model, gpus=f"{count}*{gpu}")
        table = self.table(render.TABLE_CLASS, render.length_rows(rows), caption, with_options=True)
        legend = _(
            "Per GPU, on the fullest. Token budgets that are not set are the smallest that hold one "
            "sequence. The KV cache is that of one rollout engine, with sequences of full length; fewer "
            "sequences at a time make the rollout slower and take no more memory."
        )
        return [table, nodes.paragraph("", legend, classes=["verl-legend"])]
