"""The advice and assumptions of the analysis: settings, priorities, trade-offs, commands and metrics."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..fields import as_text
from ..i18n import _
from ..settings.writing import LAUNCHER, nested_yaml, overrides
from ..units import GB, gb, gb_number, short_number
from .blocks import code_block, in_a_row, recorded
from .table import Cell, column_table, remark_marks, table_group

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from docutils import nodes

    from ..analysis.analysis import Outcome
    from ..analysis_records import Assumptions, Command, Metric, Priority, TradeOff
    from ..registries import ConfigKey
    from .remarks import Marks

CONFIG_CLASS = "verl-config"


def settings_yaml(settings: Mapping[str, Any]) -> nodes.literal_block:
    """Write settings as a YAML file."""
    return code_block(nested_yaml(settings), "yaml", CONFIG_CLASS)


def settings_command(settings: Mapping[str, Any], keys: Iterable[ConfigKey | None]) -> nodes.literal_block:
    """Write settings as the arguments of a launch script."""
    new = {key.name for key in keys if key and not key.in_yaml}
    return code_block(" \\\n    ".join([LAUNCHER, *overrides(settings, new)]), "bash", CONFIG_CLASS)


def settings_rows(
    settings: Mapping[str, Any],
    keys: Iterable[ConfigKey | None],
    marks: Marks,
) -> nodes.tgroup:
    """Make one row per key, with verl's default and the key's effect."""
    unknown = _("unknown")
    return column_table(zip(settings.items(), keys, strict=True), [
        (_("Key"), lambda row: Cell.path(row[0][0], remarks=marks(row[0][0]))),
        (_("Advised"), lambda row: Cell.of(as_text(row[0][1]))),
        (_("verl's default"), lambda row: Cell.of(as_text(row[1].default) if row[1] else unknown)),
        (_("Effect on memory"), lambda row: Cell.of(_one_line(row[1].effect) if row[1] else unknown)),
    ])  # fmt: skip


def _one_line(text: str) -> str:
    return " ".join(text.split())


def assumption_rows(assumed: Assumptions, marks: Marks) -> nodes.tgroup:
    """Make one row per assumption."""

    def row(subject: str, label: str, text: str, **values: float | str) -> list[Cell]:
        shown = {
            name: value if isinstance(value, str) else short_number(value) for name, value in values.items()
        }
        value = text.format(**shown, precision=assumed.precision)
        return [Cell.of(label, marks(subject)), Cell.of(value)]

    each = _("{size} bytes each ({precision})")
    optimizer = _("Optimizer states ({optimizer})").format(optimizer=assumed.optimizer)
    moments = _("{moments} moments of {size} bytes per parameter")
    activations = _("{size} bytes per token, layer and hidden unit ({precision})")
    kv_cache = _("a key and a value of {size} bytes per token, layer and hidden unit ({precision})")
    overhead = _("{size} per GPU for the CUDA context and libraries")
    gpus = _("{number}, unless the model has another number")
    rows = [
        row("parameters", _("Parameters"), each, size=assumed.parameter_bytes),
        row("gradients", _("Gradients"), each, size=assumed.gradient_bytes),
        row("optimizer", optimizer, moments, moments=assumed.optimizer_moments, size=assumed.optimizer_bytes),
        row(
            "activations", _("Activations, without checkpointing"), activations, size=assumed.activation_bytes
        ),
        row("kv-cache", _("KV cache, for the rollout"), kv_cache, size=assumed.kv_cache_bytes),
        row("overhead", _("System overhead"), overhead, size=gb(assumed.overhead_gb * GB)),
        row("vocabulary-size", _("Vocabulary"), _("{number} entries"), number=assumed.vocabulary_size),
        row("sequence-length", _("Sequence length"), _("{number} tokens"), number=assumed.sequence_length),
        row("batch-size", _("Batch size"), _("{number} sequences"), number=assumed.batch_size),
        row("ffn-ratio", _("FFN dimension"), _("{number} × hidden size"), number=assumed.ffn_ratio),
        row(
            "memory-limit",
            _("Memory to use"),
            _("below {share} % of a GPU"),
            share=assumed.memory_limit * 100,
        ),
        row("gpus", _("GPUs"), gpus, number=assumed.gpus),
    ]
    return table_group([_("Assumption"), _("Value")], rows)


def priority_rows(
    priorities: Sequence[Priority],
    outcomes: Sequence[Outcome],
    marks: Marks,
) -> nodes.tgroup:
    """Make one row per step, in the order of the advice, with its saving on each model."""
    headings = [
        _("Priority"),
        _("Step"),
        _("Why"),
        *(_("Saves by the rule, {model} (GB)").format(model=outcome.shape.name) for outcome in outcomes),
        _("Keys"),
    ]
    rows = []
    for number, item in enumerate(priorities, 1):
        taken = [{step.name: step for step in outcome.steps}.get(item.name) for outcome in outcomes]
        label = next((step.label for step in taken if step), item.name)
        rows.append([
            Cell.of(f"{number}. {item.advice}"),
            Cell.of(label, marks(item.name)),
            Cell.of(_one_line(item.reason)),
            *(Cell.number(gb_number(step.saved) if step else "") for step in taken),
            Cell.path(*item.keys),
        ])  # fmt: skip
    return table_group(headings, rows)


def trade_off_rows(items: Iterable[TradeOff], marks: Marks) -> nodes.tgroup:
    """Make one row per change."""
    return column_table(items, [
        (_("Change"), lambda item: Cell.of(item.change, marks(item.name))),
        (_("Reduces"), lambda item: Cell.of(item.gain)),
        (_("Costs"), lambda item: Cell.of(item.cost)),
    ])  # fmt: skip


def command_list(commands: Iterable[Command], marks: Marks) -> list[nodes.Element]:
    """Return each command in a block, below its purpose."""
    result: list[nodes.Element] = []
    for item in commands:
        paragraph = recorded(item.purpose)
        paragraph += remark_marks(marks(item.name))
        result += [paragraph, code_block(item.command, "bash", CONFIG_CLASS)]
    return result


def metric_rows(metrics: Iterable[Metric], assumed: Assumptions, marks: Marks) -> nodes.tgroup:
    """Make one row per metric."""
    limit = _("Below {share} % of the GPU's memory.").format(share=short_number(assumed.memory_limit * 100))
    rows = []
    for item in metrics:
        text = _one_line(item.text)
        text = in_a_row(limit, text) if item.limited else text
        rows.append([Cell.of(item.label, marks(item.name)), Cell.of(text)])
    return table_group([_("Metric"), _("What to look for")], rows)
