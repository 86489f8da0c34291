"""What the analysis advises: settings, priorities, trade-offs, commands and metrics; and what it assumes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from docutils import nodes

from ..catalog.fields import as_text
from ..units import GB, gb, gb_number, plain
from .settings import nested_yaml, overrides
from .table import Cell, add_remarks, table_group

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from ..catalog.models.analysis import Assumptions, Command, Metric, Priority, TradeOff
    from ..catalog.models.config_key import ConfigKey
    from ..memory.analysis import Outcome

CONFIG_CLASS = "verl-config"
ANALYSIS_CLASS = "verl-analysis"
#: How verl is launched.
LAUNCHER = "python3 -m verl.trainer.main_ppo"


def settings_yaml(settings: Mapping[str, Any]) -> nodes.literal_block:
    """Settings as a file would hold them."""
    return _code(nested_yaml(settings), "yaml")


def settings_command(settings: Mapping[str, Any], keys: Iterable[ConfigKey | None]) -> nodes.literal_block:
    """Settings as a launch script passes them."""
    new = {key.name for key in keys if key and not key.in_yaml}
    return _code(" \\\n    ".join([LAUNCHER, *overrides(settings, new)]), "bash")


def _code(text: str, language: str) -> nodes.literal_block:
    return nodes.literal_block(text, text, language=language, classes=[CONFIG_CLASS])


def settings_rows(
    settings: Mapping[str, Any],
    keys: Iterable[ConfigKey | None],
    marks: Mapping[str, Sequence[str]],
) -> nodes.tgroup:
    """One key a row, with verl's default and what the key does."""
    rows = []
    for (name, value), key in zip(settings.items(), keys, strict=True):
        rows.append([
            Cell([(name, None)], remarks=marks.get(name, ()), classes=("verl-path",)),
            Cell.of(as_text(value)),
            Cell.of(as_text(key.default) if key else "not known"),
            Cell.of(" ".join(key.effect.split()) if key else "not known"),
        ])  # fmt: skip
    return table_group(["Key", "Advised", "verl's default", "What it does to memory"], rows)


def assumption_rows(assumed: Assumptions, marks: Mapping[str, Sequence[str]]) -> nodes.tgroup:
    """Everything that the figures assume."""
    precision = assumed.precision
    facts = [
        ("Parameters", f"{plain(assumed.parameter_bytes)} bytes each ({precision})", "parameters"),
        ("Gradients", f"{plain(assumed.gradient_bytes)} bytes each ({precision})", "gradients"),
        (
            f"Optimizer states ({assumed.optimizer})",
            f"{assumed.optimizer_moments} moments of {plain(assumed.optimizer_bytes)} bytes per parameter",
            "optimizer",
        ),
        (
            "Activations, without checkpointing",
            f"{plain(assumed.activation_bytes)} bytes per token, layer and hidden unit ({precision})",
            "activations",
        ),
        (
            "KV cache, for the rollout",
            f"a key and a value of {plain(assumed.kv_cache_bytes)} bytes per token, layer and hidden unit "
            f"({precision})",
            "kv-cache",
        ),
        (
            "System overhead",
            f"{gb(assumed.overhead_gb * GB)} per GPU for the CUDA context and libraries",
            "overhead",
        ),
        ("Vocabulary", f"{plain(assumed.vocabulary_size)} entries", "vocabulary-size"),
        ("Sequence length", f"{plain(assumed.sequence_length)} tokens", "sequence-length"),
        ("Batch size", f"{plain(assumed.batch_size)} sequences", "batch-size"),
        ("FFN dimension", f"{plain(assumed.ffn_ratio)} × hidden size", "ffn-ratio"),
        ("Memory to use", f"below {plain(assumed.memory_limit * 100)} % of a GPU", "memory-limit"),
        ("GPUs", f"{plain(assumed.gpus)}, where a model names no other number", "gpus"),
    ]
    rows = [[Cell.of(label, marks.get(subject, ())), Cell.of(value)] for label, value, subject in facts]
    return table_group(["Assumption", "Value"], rows)


def priority_rows(
    priorities: Sequence[Priority],
    outcomes: Sequence[Outcome],
    marks: Mapping[str, Sequence[str]],
) -> nodes.tgroup:
    """The steps in the order of advice, with what each saves on every model."""
    headings = [
        "Priority",
        "Step",
        "Why",
        *(f"Saves by the rule, {outcome.shape.name} (GB)" for outcome in outcomes),
        "Keys",
    ]
    rows = []
    for number, item in enumerate(priorities, 1):
        taken = [
            next((step for step in outcome.steps if step.name == item.name), None) for outcome in outcomes
        ]
        label = next((step.label for step in taken if step), item.name)
        rows.append([
            Cell.of(f"{number}. {item.advice}"),
            Cell.of(label, marks.get(item.name, ())),
            Cell.of(" ".join(item.reason.split())),
            *(Cell.number(gb_number(step.saved) if step else "") for step in taken),
            Cell([(key, None) for key in item.keys], classes=("verl-path",)),
        ])  # fmt: skip
    return table_group(headings, rows)


def trade_off_rows(items: Iterable[TradeOff], marks: Mapping[str, Sequence[str]]) -> nodes.tgroup:
    """One change a row."""
    rows = [
        [Cell.of(item.change, marks.get(item.name, ())), Cell.of(item.gain), Cell.of(item.cost)]
        for item in items
    ]
    return table_group(["Change", "Makes smaller", "Costs"], rows)


def command_list(commands: Iterable[Command], marks: Mapping[str, Sequence[str]]) -> list[nodes.Element]:
    """Each command in a block of its own, under what it shows."""
    result: list[nodes.Element] = []
    for item in commands:
        paragraph = nodes.paragraph("", item.purpose)
        add_remarks(paragraph, marks.get(item.name, ()))
        result += [paragraph, _code(item.command, "bash")]
    return result


def metric_rows(
    metrics: Iterable[Metric], assumed: Assumptions, marks: Mapping[str, Sequence[str]]
) -> nodes.tgroup:
    """What to watch, one thing a row."""
    limit = f"Below {plain(assumed.memory_limit * 100)} % of the GPU's memory. "
    rows = [
        [
            Cell.of(item.label, marks.get(item.name, ())),
            Cell.of((limit if item.limited else "") + " ".join(item.text.split())),
        ]
        for item in metrics
    ]
    return table_group(["Metric", "What to look for"], rows)
