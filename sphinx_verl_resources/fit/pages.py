"""Answers, estimates, recorded runs and measured cases on pages."""

from __future__ import annotations

from contextlib import suppress
from itertools import starmap
from typing import TYPE_CHECKING

from docutils import nodes

from .. import nodes as blocks
from ..charts import formula, formula_list
from ..diagnostics import NoAnswerError
from ..i18n import N_, _
from ..memory.engine import vllm_pool_in_torch_peak
from ..memory.recorded import credible, estimate_run, figures, has_own_rollout_gpus, version_of_run
from ..memory.request import MODEL
from ..nodes import NOTES_CLASS, PATH_CLASS, Cell, between_commas, bold, fill, link, listed, recorded, titled
from ..records import row_id
from ..selection import FIELDS
from ..texts import WORD_TEXTS, field_pieces, row_classes, run_title
from ..units import GIB, Category, gib, gib_number, share, signed
from .answer import answer_run
from .charts import phase_chart
from .command import SEPARATOR, as_arguments, launcher
from .words import MOST, change_text, heading, in_a_row, label, lines, measured, run_name, short, title, whole

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from sphinx.environment import BuildEnvironment

    from ..directive import VerlDirective
    from ..memory.estimate import Estimate
    from ..memory.recorded import Score
    from ..memory.registries import EstimatorContext
    from ..memory.request import Verdict
    from ..nodes import Content
    from ..records import Run
    from ..units import Breakdown
    from .answer import Answer
    from .words import Line

MARK_CLASS, ANSWER_CLASS, MEMORY_CLASS = "verl-verdict", "verl-answer", "verl-memory"
#: Class of a text that explains a table.
LEGEND_CLASS = "verl-legend"


# -- pieces


def mark(verdict: Verdict, text: str = "") -> nodes.inline:
    """Return a badge of a verdict, with its label or a translated text; the style sheet adds a sign."""
    return nodes.inline("", text or label(verdict), classes=[MARK_CLASS, f"{MARK_CLASS}-{verdict}"])


def stop() -> nodes.inline:
    """Return the full stop after a badge, which the style sheet hides."""
    return nodes.inline("", _("."), classes=["verl-unseen"])


def row_link(env: BuildEnvironment, run: str, text: str) -> nodes.Element:
    """Return a link to the row of a run; if no page shows the run, it becomes the text and the id."""
    from ..domain import RUN, link_later  # commands use this module without Sphinx

    return link_later(env, RUN, run, text, nodes.Text(f"{text} ({run})"))


def legend(text: str) -> nodes.paragraph:
    """Make the paragraph that explains a table."""
    return nodes.paragraph("", text, classes=[LEGEND_CLASS])


def titled_item(title: str, content: Content) -> nodes.list_item:
    """Make a list item that begins with a bold title."""
    return nodes.list_item("", nodes.paragraph("", "", *titled(nodes.strong("", title), content)))


# -- an answer


def answer(found: Answer, env: BuildEnvironment) -> list[nodes.Node]:
    """Return the verdict with its reason, and the other lines about an answer as a list."""
    first, *others = lines(found)
    badge = nodes.strong("", "", mark(found.verdict, title(found.verdict)))
    text = fill(in_a_row("{verdict}", "{reason}"), verdict=[badge, stop()], reason=first.text)
    items = nodes.bullet_list("", *_changes(found), classes=[ANSWER_CLASS])
    items += [_line_item(line, env) for line in others]
    if shown := credible(found.best.estimate):
        items += titled_item(_("Value of verl's metric"), _metric(shown))
    return [nodes.paragraph("", "", *text, classes=[ANSWER_CLASS]), *([items] if items.children else [])]


def _line_item(line: Line, env: BuildEnvironment) -> nodes.list_item:
    links = between_commas(row_link(env, run.id, run_name(run)) for run in line.runs)
    return titled_item(line.title, fill(line.text, runs=links) if links else line.text)


def _changes(found: Answer) -> list[nodes.Node]:
    """Return the item with the changes that make a run fit; each caveat is shown once."""
    items, seen = nodes.bullet_list(), set[str]()
    for change in found.changes[:MOST]:
        settings = nodes.literal("", " ".join(change.arguments))
        text = fill(change_text(change, "{settings}", seen), settings=settings)
        items += nodes.list_item("", nodes.paragraph("", "", *text))
        seen.update(change.caveats)
    if not items.children:
        return []
    first = fill(_("{title}:"), title=nodes.strong("", heading(found)))
    return [nodes.list_item("", nodes.paragraph("", "", *first), items)]


def _metric(estimate: Estimate) -> list[nodes.Node]:
    """Return the estimate of the figure that verl prints."""
    text = _("{key}: {size} GiB (range {low} to {high}), which does not decide whether a run fits.")
    if vllm_pool_in_torch_peak(estimate.settings):
        text = in_a_row(text, _("It includes the memory of the sleeping rollout engine."))
    low, high = map(whole, estimate.torch_peak_range)
    key = nodes.literal("", "perf/max_memory_allocated_gb")
    return fill(text, key=key, size=whole(estimate.torch_peak), low=low, high=high)


def phase_rows(estimate: Estimate) -> nodes.tgroup:
    """Make one row for each phase, in order; the peak phase is bold."""
    shown = [category for category in Category if any(phase.sizes[category] for phase in estimate.phases)]
    quantities = (_("Total"), *(_(category.heading) for category in shown))
    headings = [_("Phase"), *(_("{quantity} (GiB)").format(quantity=name) for name in quantities)]
    rows = []
    for phase in estimate.phases:
        is_peak, text = phase.name == estimate.peak_phase.name, _(phase.label)
        text = _("{phase} (peak phase)").format(phase=text) if is_peak else text
        numbers = (phase.total, *(phase.sizes[category] for category in shown))
        cells = [Cell.of(text), *(Cell.number(gib_number(size) if size else "0") for size in numbers)]
        rows.append(bold(cells) if is_peak else cells)
    return blocks.table_group(headings, rows)


def peak_parts(estimate: Estimate) -> list[nodes.Node]:
    """List the parts of the peak phase."""
    phase = estimate.peak_phase
    return _parts(_("Parts of the peak phase, {phase}:").format(phase=_(phase.label)), phase.breakdown)


def host_parts(estimate: Estimate) -> list[nodes.Node]:
    """List the parts of the memory of a host."""
    return _parts(_("Parts of a node's host memory:"), estimate.host)


_EVIDENCE = {"exact": N_("exact"), "measured": N_("measured"), "assumed": N_("assumed")}


def _parts(heading: str, breakdown: Breakdown) -> list[nodes.Node]:
    """List parts under a title, each with its formula, its numbers and its evidence."""
    found, term = [], _("{part} ({evidence})")
    for part in breakdown.components:
        name = term.format(part=_(part.label), evidence=_(_EVIDENCE[part.evidence]))
        found.append((name, part.equation(gib)))
    found.append((_("Total"), breakdown.equation(lambda size: f"{size / GIB:,.2f}", gib)))
    items = formula_list((nodes.term("", name), [formula(text)]) for name, text in found)
    return [blocks.notes_title(heading), items]


def evidence_legend() -> nodes.paragraph:
    """Return the legend of the evidence words."""
    text = _(
        "Exact: counted. Measured: observed. Assumed: a rule of thumb. Sizes without a unit are in bytes."
    )
    return legend(text)


def notes(estimate: Estimate) -> list[nodes.Node]:
    """List the settings that the estimate leaves out, and its assumptions."""
    found = [text.partition(": ")[::2] for text in estimate.unsupported]
    found += [(problem.place.key, problem.message) for problem in estimate.warnings]
    items = nodes.bullet_list(classes=[NOTES_CLASS])
    for key, text in found:
        items += nodes.list_item("", recorded("", nodes.literal("", key), nodes.Text(f": {text}")))
    return [blocks.notes_title(_("What the estimate leaves out or assumes:")), items] if found else []


# -- a recorded run


def run_texts(run: Run, data: EstimatorContext) -> dict[str, str]:
    """Return the computed columns of a recorded run; empty if its settings allow no estimate."""
    with suppress(NoAnswerError):
        estimate = estimate_run(run, data)
        if known := figures(estimate):
            shown = credible(estimate)
            phase = _(shown.peak_phase.label) if shown else ""
            return {"estimate.peak": _span(known[0], known[2]), "estimate.phase": phase}
    return {}


def _span(low: float, high: float) -> str:
    return _("{low} to {high}").format(low=whole(low), high=whole(high))


def details_of(directive: VerlDirective, run: Run, remarks: Sequence[nodes.list_item]) -> blocks.verl_details:
    """Return the facts of a run with its estimate and settings, folded below its name and its peak.

    Args:
        directive: the directive that shows the run.
        run: the run.
        remarks: the remarks about the run.
    """
    items, data, estimate = nodes.bullet_list(classes=["verl-facts"]), directive.data, None
    for field in FIELDS:
        if field.detail and field.value(run) is not None:
            values = starmap(link, field_pieces(run, field.name, directive.domain.links))
            items += titled_item(_(field.detail), between_commas(values))
    items += remarks
    content: list[nodes.Node] = [items]
    with suppress(NoAnswerError):
        found = answer_run(run, data)
        if found.best.estimate.is_complete:
            estimate = found.best.estimate
            content += answer(found, directive.env)
    if estimate is None and run.settings:
        text = _("The source quotes only some of the settings, so there is no estimate.")
        content.append(nodes.paragraph("", text))
    if estimate and (shown := credible(estimate)):
        content.append(directive.chart(phase_chart(shown, run_title(run), run.measured), run.id))
        # Without a caption, the table is not numbered with the page's tables.
        content.append(directive.table(phase_rows(shown), with_options=False, table_class=MEMORY_CLASS))
    name = nodes.strong("", listed([run_title(run), run.train]))
    word = "" if run.word == "ran" else _(WORD_TEXTS[run.word])
    facts = listed(filter(None, [word, peaks_text(run, estimate)]))
    summary = titled(name, facts) if facts else [name]
    content += _flags(run, data)
    block = blocks.details(summary, content, f"verl-details {row_classes(run)}")
    directive.reserve(f"{row_id(run.id)}-details", block)
    return block


def peaks_text(run: Run, estimate: Estimate | None) -> str:
    """Return the estimated peak of a run, and what was measured."""
    texts = []
    if estimate and (known := figures(estimate)):
        texts.append(_("estimated peak {range} GiB").format(range=_span(known[0], known[2])))
    elif estimate and not estimate.undecided:
        texts.append(_("the estimate is above the GPU's memory"))
    if text := measured(run, estimate):
        texts.append(_("measured {text}").format(text=text))
    return listed(texts)


def _flags(run: Run, data: EstimatorContext) -> list[nodes.Node]:
    """Make the block with the settings to copy: a command, or only overrides for another trainer."""
    if not run.settings:
        return []
    files = {"data.train_files": "TODO", "data.val_files": "TODO"}  # verl would take GSM8K
    settings = {f"{MODEL}.path": run.model, **files, **run.settings}
    arguments = as_arguments(settings, version_of_run(run), data)
    if has_own_rollout_gpus(run):
        text, code = _("Settings as overrides:"), " \\\n".join(arguments)
    else:
        command = launcher(version_of_run(run), run.settings, is_megatron=run.train == "megatron")
        text, code = _("Settings as a command:"), SEPARATOR.join([*command, *arguments])
    return [blocks.notes_title(text), blocks.code_block(code, "bash", "verl-flags")]


# -- measured cases


def case_rows(scores: Iterable[Score], marks: Mapping[str, tuple[str, str]]) -> nodes.tgroup:
    """Make one row per case.

    Args:
        scores: the cases.
        marks: by the reason why a case does not count, the mark and the id of that reason.
    """
    headings = (
        *(_("Case and source"), _("Model"), _("GPUs"), _("Compared"), _("Computed (GiB)")),
        *(_("Range (GiB)"), _("Observed (GiB)"), _("Error"), _("Inside, or verdict")),
    )
    return blocks.table_group(headings, [[*_case(item, marks)] for item in scores])


def _case(item: Score, marks: Mapping[str, tuple[str, str]]) -> Iterator[Cell]:
    case, found, observed = item.case, item.estimate, item.observed
    yield Cell([(case.id, case.source.address if case.source else None)], classes=(PATH_CLASS,))
    yield Cell.of(case.model.rpartition("/")[2])
    yield Cell.of(f"{case.gpus.count or '?'}{f'*{case.gpus.type}' if case.gpus.type else ''}")
    counted = _("PyTorch's counter") if item.of_torch else _("peak of the GPU")
    yield Cell.of(counted if observed else _("outcome"))
    sizes = found and (found.peak, found.low, found.high)
    sizes = (item.computed, item.low, item.high) if observed else sizes
    yield Cell.number(gib_number(sizes[0]) if sizes else "")
    yield Cell.of(_span(*sizes[1:]) if sizes else "")
    outcome = _("out of memory") if case.outcome == "oom" else _("ran") if case.outcome else ""
    yield Cell.number(gib_number(observed)) if observed else Cell.of(outcome)
    error = "" if item.deviation is None else signed(round(item.deviation, 3) + 0.0, share)  # no -0.0
    yield Cell.number(error if case.is_scored or not error else f"({error})")
    yield Cell([(_inside(item), None)], blocks.marks(marks[note]) if (note := reason(item)) else [])


def _inside(item: Score) -> str:
    """Return whether the figure is inside the range, the verdict, or that the case does not count."""
    case = item.case
    if reason(item):
        text = _("not scored") if case.not_scored else _("not estimated")
        return _("contested") if case.contested else text
    if item.observed:
        return _("yes") if item.inside else _("no")
    text = short(item.verdict, item.estimate.fits_up_to_tokens if item.estimate else None)
    agrees = {True: _("{verdict}: agrees"), False: _("{verdict}: contradicts"), None: "{verdict}"}
    return agrees[item.agrees].format(verdict=text)


def reason(item: Score) -> str:
    """Return the reason why a case does not count; empty if it does."""
    return " ".join((item.case.contested or item.case.not_scored or item.error or "").split())


def reason_list(reasons: Iterable[str], targets: Mapping[str, nodes.target]) -> nodes.enumerated_list:
    """Return the list of reasons why cases do not count, each with the target and the number of its marks."""
    return blocks.numbered_notes(*(recorded("", targets[text], nodes.Text(text)) for text in reasons))
