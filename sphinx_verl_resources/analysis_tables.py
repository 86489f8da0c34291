"""The memory analysis as tables and formulas."""

from __future__ import annotations

from typing import TYPE_CHECKING

from docutils import nodes

from .analysis import LABELS, PER_GPU, Bar, Outcome, StepTaken
from .analysis_records import TOTAL
from .breakdown import Breakdown, Component
from .i18n import N_, _, plural
from .nodes import Cell, bold, column_table, listed, recorded, table_group, titled
from .units import GB, gb, gb_number, gib_number, share, short_number, signed

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from .analysis import JudgedClaim, ModelShape
    from .analysis_records import Assumptions

    #: A function that returns the marks of the remarks about a subject.
    Marks = Callable[[str], list[nodes.Node]]

FORMULA_CLASS, FORMULAS_CLASS = "verl-formula", "verl-formulas"
_UNUSED = N_("not used by any formula")
#: The names of components inside a sentence.
_INSIDE = {
    "parameters": N_("parameters"),
    "gradients": N_("gradients"),
    "optimizer": N_("optimizer states"),
    "activations": N_("activations"),
    "kv-cache": N_("KV cache"),
    "overhead": N_("system overhead"),
}


def assumption_texts(assumed: Assumptions) -> list[tuple[str, str, str]]:
    """Return the subject of each assumption, its name, and its value."""
    show = short_number
    each = _("{size} bytes each ({precision})")
    moments = _("{moments} moments of {size} bytes per parameter")
    activations = _("{size} bytes per token, layer and hidden unit ({precision})")
    kv_cache = _("a key and a value of {size} bytes per token, layer and hidden unit ({precision})")
    overhead = _("{size} per GPU for the CUDA context and libraries")
    limit = _("below {share} % of a GPU").format(share=show(assumed.memory_limit * 100))
    gpus = _("{number}, unless the model has another number").format(number=show(assumed.gpus))

    def of(text: str, size: float) -> str:
        return text.format(
            size=show(size), precision=assumed.precision, moments=show(assumed.optimizer_moments)
        )

    def counted(text: str, number: float) -> str:
        return text.format(number=show(number))

    return [
        ("parameters", _("Parameters"), of(each, assumed.parameter_bytes)),
        ("gradients", _("Gradients"), of(each, assumed.gradient_bytes)),
        (
            "optimizer",
            _("Optimizer states ({optimizer})").format(optimizer=assumed.optimizer),
            of(moments, assumed.optimizer_bytes),
        ),
        (
            "activations",
            _("Activations, without checkpointing"),
            of(activations, assumed.activation_bytes),
        ),
        ("kv-cache", _("KV cache, for the rollout"), of(kv_cache, assumed.kv_cache_bytes)),
        ("overhead", _("System overhead"), overhead.format(size=gb(assumed.overhead_gb * GB))),
        ("vocabulary-size", _("Vocabulary"), counted(_("{number} entries"), assumed.vocabulary_size)),
        ("sequence-length", _("Sequence length"), counted(_("{number} tokens"), assumed.sequence_length)),
        ("batch-size", _("Batch size"), counted(_("{number} sequences"), assumed.batch_size)),
        ("ffn-ratio", _("FFN dimension"), counted(_("{number} × hidden size"), assumed.ffn_ratio)),
        ("memory-limit", _("Memory to use"), limit),
        ("gpus", _("GPUs"), gpus),
    ]


def memory_caption(outcome: Outcome) -> str:
    """Return the caption of a table: the numbers of tokens and, if a step uses several, of GPUs."""
    batch, length = outcome.batch_size, outcome.sequence_length
    caption = plural(
        "{model}: memory for {batch} sequence of {length} tokens",
        "{model}: memory for {batch} sequences of {length} tokens",
        batch,
    ).format(model=outcome.shape.name, batch=batch, length=length)
    if all(step.gpus is None for step in outcome.steps):
        return caption
    gpus = plural("{caption} on {count} GPU", "{caption} on {count} GPUs", outcome.gpus)
    return gpus.format(caption=caption, count=outcome.gpus)


def step_title(taken: StepTaken) -> str:
    """Return a step with its number of GPUs, if it has one: ``FSDP over 8 GPUs``."""
    if taken.gpus is None:
        return taken.step.label
    text = plural("{step} over {count} GPU", "{step} over {count} GPUs", taken.gpus)
    return text.format(step=taken.step.label, count=taken.gpus)


def bar_label(bar: Bar) -> str:
    """Return the name of a line of the waterfall."""
    return step_title(bar.of) if isinstance(bar.of, StepTaken) else _(bar.label)


def specification_rows(outcome: Outcome, marks_of: Marks) -> nodes.tgroup:
    """Make one row per quantity, including those that no formula uses."""
    shape, unused = outcome.shape, _(_UNUSED)
    origin, hidden, ffn_source = _origin(shape)
    ffn = short_number(shape.ffn_dimension)
    if shape.checkpoint and not shape.ffn_dimension:
        ffn = _("no dense layer")
    heads = short_number(shape.attention_heads) if shape.attention_heads else _("not recorded")
    facts = [
        (_("Parameters"), short_number(shape.parameters), origin, ""),
        (_("Hidden size"), short_number(shape.hidden_size), hidden, ""),
        (_("Layers"), short_number(shape.layers), "", ""),
        (_("FFN dimension"), ffn, _("; ").join(filter(None, [ffn_source, unused])), ""),
        (_("Attention heads"), heads, unused, ""),
        (_("Vocabulary"), short_number(shape.vocabulary_size), unused, "vocabulary-size"),
        (_("Sequences"), short_number(outcome.batch_size), _("on every GPU"), "batch-size"),
        (_("Tokens per sequence"), short_number(outcome.sequence_length), "", "sequence-length"),
        (_("GPUs"), short_number(outcome.gpus), "", "gpus"),
    ]
    return column_table(facts, [
        (_("Quantity"), lambda fact: Cell.of(fact[0], marks_of(fact[3]))),
        (_("Value"), lambda fact: Cell.number(fact[1])),
        (_("Remark"), lambda fact: fact[2]),
    ])  # fmt: skip


def _origin(shape: ModelShape) -> tuple[str, str, str]:
    """Return the remarks on parameters, hidden size and FFN dimension of a shape."""
    if shape.checkpoint:
        return _("of {checkpoint}").format(checkpoint=shape.checkpoint), "", ""
    implied = _("{billions} billion from the shape below")
    stated = _("the stated rule, {rule}, gives {size}; this is {share} of it").format(
        rule="sqrt(parameters / (12 × layers))",
        size=short_number(round(shape.stated_hidden_size)),
        share=share(shape.hidden_size / shape.stated_hidden_size),
    )
    ratio = short_number(shape.ffn_dimension / shape.hidden_size)
    return (
        implied.format(billions=f"{shape.implied_parameters / 1e9:.2f}"),
        stated,
        _("{number} × hidden size").format(number=ratio),
    )


def formula_list(outcome: Outcome, marks_of: Marks) -> nodes.definition_list:
    """Return the list of formulas of each component and each step."""

    def total(breakdown: Breakdown) -> str:
        return sum_formula(breakdown, lambda size: f"{size / GB:,.3f}".rstrip("0").rstrip("."), gb)

    items = formula_items()
    for component in outcome.start.components:
        formula = component_formula(component, gb)
        items += formula_item(_(component.label), [("", formula)], marks_of(component.key))
    items += formula_item(_("Total"), [("", total(outcome.start))], marks_of(TOTAL))
    for taken in outcome.steps:
        changed = [item for item in taken.after.components if item.key in taken.step.components]
        lines = [(_(item.label) if len(changed) > 1 else "", component_formula(item, gb)) for item in changed]
        lines.append(("", total(taken.after)))
        items += formula_item(step_title(taken), lines, marks_of(taken.step.name), taken.step.text)
    return items


def formula_items() -> nodes.definition_list:
    """Return an empty list for ``formula_item``."""
    # "simple" keeps sphinx_rtd_theme from styling the terms as signatures.
    return nodes.definition_list(classes=[FORMULAS_CLASS, "simple"])


def formula_item(
    term: str, formulas: Iterable[tuple[str, str]], after: Sequence[nodes.Node] = (), text: str = ""
) -> nodes.definition_list_item:
    """Return a term with its formulas.

    Args:
        term: the result of the formulas.
        formulas: pairs of a title, which may be empty, and a formula.
        after: marks of remarks about the term.
        text: a recorded sentence about the term.
    """
    definition = nodes.definition("", *([recorded(text)] if text else []))
    for name, formula in formulas:
        inline = nodes.inline("", formula, classes=[FORMULA_CLASS])
        definition += recorded("", *(titled(name, [inline]) if name else [inline]))
    return nodes.definition_list_item("", nodes.term("", term, *after), definition)


def component_formula(component: Component, size: Callable[[float], str]) -> str:
    """Return a component's formula; ``size`` writes bytes with a unit."""
    formula = component.formula
    return f"{formula.symbols} = {formula.numbers} = {size(component.size)}"


def sum_formula(breakdown: Breakdown, number: Callable[[float], str], size: Callable[[float], str]) -> str:
    """Return the sum of all components; ``number`` writes each with enough digits to add them up."""
    parts = " + ".join(number(item.size) for item in breakdown.components)
    return f"total = {parts} = {size(breakdown.total)}"


def waterfall_rows(outcome: Outcome, marks_of: Marks, *, with_gib: bool) -> nodes.tgroup:
    """Make the waterfall's rows, with running totals and the saving of each step."""
    rows = []
    for line in outcome.waterfall():
        change = signed(line.change, gb_number) if line.change else ""
        numbers = [change, gb_number(line.running), *([gib_number(line.running)] if with_gib else [])]
        cells = [Cell.of(bar_label(line), marks_of(line.subject)), *map(Cell.number, numbers)]
        rows.append([*(cells if line.of else bold(cells)), Cell.of(_effect(line, outcome))])
    totals = [_("Running total (GB)"), *([_("Running total (GiB)")] if with_gib else [])]
    return table_group([_("Part or step"), _("Change (GB)"), *totals, _("Share or effect")], rows)


def _effect(line: Bar, outcome: Outcome) -> str:
    """Return the description of a line: its share of the total, or its effect."""
    if isinstance(line.of, Component):
        return _("{share} of the total").format(share=share(outcome.share_of_total(line.change)))
    if line.subject == PER_GPU:
        return _("{share} saved in total").format(share=share(outcome.share_of_total(-line.change)))
    if line.of is None:
        return _("everything on one GPU")
    taken = line.of
    if not taken.saved:
        return _("no change")
    keys = [item.key for item in taken.before.components if item.key in taken.step.components]
    before, after = taken.before.of(keys), taken.after.of(keys)
    return _("{parts}: {before} → {after}").format(
        parts=listed([_(LABELS[keys[0]]), *(_(_INSIDE[key]) for key in keys[1:])]),
        before=gb_number(before),
        after=gb(after),
    )


def summary_rows(outcomes: Sequence[Outcome], marks_of: Marks, *, with_gib: bool) -> nodes.tgroup:
    """Make one row per model: its total, and the memory of a GPU after each step."""
    in_gib = (_("Per GPU (GiB)"), lambda one: Cell.number(gib_number(one.end.total)))

    def after(place: int) -> Callable[[Outcome], Cell]:
        return lambda one: Cell.number(gb_number(one.steps[place].after.total))

    return column_table(outcomes, [
        (Cell.of(_("Model")), lambda one: one.shape.name),
        (Cell.of(_("GPUs")), lambda one: Cell.number(short_number(one.gpus))),
        (
            Cell.of(_("All on one GPU (GB)"), marks_of(TOTAL)),
            lambda one: Cell.number(gb_number(one.start.total)),
        ),
        *(
            (
                Cell.of(_("then {step} (GB)").format(step=taken.step.label), marks_of(taken.step.name)),
                after(place),
            )
            for place, taken in enumerate(outcomes[0].steps if outcomes else ())
        ),
        *([in_gib] if with_gib else []),
        (
            Cell.of(_("Saved")),
            lambda one: Cell.number(share(one.share_of_total(one.start.total - one.end.total))),
        ),
    ])  # fmt: skip


#: The ways to derive a number of GPUs.
_DERIVATIONS = {"chain": N_("the chain"), "pooled": N_("the pool"), "doubled": N_("twice the minimum")}
#: The names of the requirement lists.
_LEVELS = {"minimum": N_("minimum"), "recommended": N_("recommended"), "optimal": N_("optimal")}
#: The judgements, each with the figure that decides it.
_JUDGEMENTS = {
    "holds": (N_("holds"), N_("{verdict}: {gpus} would need {size} each")),
    "too few": (N_("too few"), N_("{verdict}: they need {size} each")),
    "more than needed": (N_("more than needed"), N_("{verdict}: {gpus} would need {size} each")),
    "never fits": (N_("never fits"), N_("{verdict}: {size} stay on each GPU")),
}


def requirement_rows(claims: Iterable[JudgedClaim], after: Sequence[nodes.Node]) -> nodes.tgroup:
    """Make one row per claim and GPU; ``after`` are the marks of the computed figures."""

    def gpu(item: JudgedClaim) -> str:
        text = item.gpu
        for unknown in item.claim.unknown:
            text = _("{gpu}; there is no {unknown}").format(gpu=text, unknown=unknown)
        return text

    def count(item: JudgedClaim, derivation: str) -> Cell:
        number = item.counts[derivation]
        return Cell.number(_("none") if number is None else short_number(number))

    def verdict(item: JudgedClaim) -> Cell:
        word, reason = map(_, _JUDGEMENTS[item.judgement])
        if item.deciding:
            gpus, size = item.deciding
            word = reason.format(verdict=word, gpus=gpus, size=gb(size))
        return Cell([(word, None)], strong=item.judgement in {"too few", "never fits"})

    def derived(item: JudgedClaim) -> str:
        return listed(_(_DERIVATIONS[name]) for name in item.follows) or _("none of these")

    return column_table(claims, [
        (_("List"), lambda item: _(_LEVELS[item.claim.level])),
        (_("Printed claim"), lambda item: item.claim.text),
        (_("GPU"), gpu),
        (_("Limit (GB)"), lambda item: Cell.number(gb_number(item.limit))),
        (Cell.of(_("Per GPU (GB)"), after), lambda item: Cell.number(gb_number(item.per_gpu))),
        (_("GPUs by the chain"), lambda item: count(item, "chain")),
        (_("GPUs by the pool"), lambda item: count(item, "pooled")),
        (_("Verdict"), verdict),
        (_("Same number from"), derived),
    ])  # fmt: skip
