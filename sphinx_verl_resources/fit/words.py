"""The sentences about an answer, translated and without markup.

Pages, ``plan`` and the form say the same, because each of them shows the lines of this module.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from ..i18n import N_, _, plural
from ..memory.recorded import credible, figures
from ..memory.versions import behaviour, version_text
from ..texts import WORD_TEXTS, run_title
from ..units import GIB, gib, short_number

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping

    from ..memory.estimate import Estimate
    from ..memory.request import Verdict
    from ..records import Run
    from .answer import Answer
    from .changes import Change
    from .evidence import Trust
    from .layouts import Layout

LABELS: Mapping[str, str] = {
    "fits": N_("fits"),
    "borderline": N_("borderline"),
    "depends-on-lengths": N_("depends on the lengths"),
    "does-not-fit": N_("does not fit"),
    "unknown": N_("unknown"),
}
#: The figures of an estimate, in whole GiB, which come before the reason.
PEAK = N_("Peak {peak} GiB per GPU (range {low} to {high}); the GPU has {capacity} GiB.")
#: The reasons of verdicts, see ``layouts.Reason``. Two more: a run that ran with the GPU's memory inside the
#: range, and recorded runs that contradict an estimate which is too large.
REASONS: Mapping[str, str] = {
    "fits": "",
    "borderline": N_("The GPU's memory is inside this range."),
    "lengths": N_("The peak is for sequences at their limits; shorter ones fit."),
    "too-large": N_("Even the low end of the range exceeds the GPU's memory."),
    "engine": N_("The rollout engine may not start: its KV cache holds {room} tokens and needs {needed}."),
    "host": N_("A node may run out of host memory."),
    "no-bfloat16": N_("The GPU does not support bfloat16, the data type that verl computes in."),
    "ran": N_(
        "It ran although the estimate is above the GPU's memory: the estimate is too high here, or its "
        "sequences were short."
    ),
    "bounded": N_("It ran, so it needed no more than the GPU's memory."),
    "contradicted": N_("Recorded runs contradict this: it is too high, or their sequences were short."),
}
#: What can be offloaded, in the words of ``layouts.OFFLOADED``.
PARTS = (N_("weights"), N_("gradients"), N_("optimizer"), N_("activations"))
COSTS: Mapping[str, str] = {
    "none": N_("costs no time"),
    "little": N_("costs little time"),
    "much": N_("costs a lot of time"),
}
#: What measured figures count.
COUNTERS: Mapping[str, str] = {
    "device": N_("in use on the GPU"),
    "torch-max-allocated": N_("allocated by PyTorch"),
    "torch-max-reserved": N_("reserved by PyTorch"),
    "not-stated": N_("counter not stated"),
}
#: Maximum number of recorded runs to show, and of changes.
MOST = 3


class Line(NamedTuple):
    """A thing to say about an answer.

    Attributes:
        name: its key, the same in every language: verdict, model, measured, ran, reported, claimed,
            contested, layout, offloaded, host, sure, release, assumed.
        title: its title; empty for the reason of the verdict, which follows the verdict's own label.
        text: its sentences; ``{runs}`` stands where the names of ``runs`` go.
        runs: the recorded runs that it names.
    """

    name: str
    title: str
    text: str
    runs: tuple[Run, ...] = ()

    @property
    def plain(self) -> str:
        """The text without links."""
        return self.text.replace("{runs}", _(", ").join(map(run_name, self.runs)))


def lines(answer: Answer) -> list[Line]:
    """Return what to say about an answer, the reason of its verdict first."""
    best, note = answer.best, answer.request.model_note
    found = [Line("verdict", "", why(best, answer.reason)), Line("model", _("Model"), note)]
    if answer.own and (text := measured(answer.own, best.estimate)):
        found.append(Line("measured", _("Measured"), _("{sentence}.").format(sentence=text)))
    found += _evidence(answer)
    if answer.reason not in ("unknown", "no-bfloat16"):
        found.append(Line("layout", _("Layout"), "" if answer.own else layout_text(best)))
        found.append(Line("offloaded", _("Offloaded to host memory"), offloaded(best)))
        found.append(Line("host", _("Host memory"), host(best)))
        found.append(_sure(answer))
        found.append(Line("release", _("Other release"), _release(answer)))
    assumed = ", ".join(text for text in answer.assumed if text != note)
    found.append(Line("assumed", _("Assumed"), assumed and _("{sentence}.").format(sentence=assumed)))
    return [line for line in found if line.text]


# -- the verdict


def label(verdict: Verdict) -> str:
    """Return the translated label of a verdict."""
    return _(LABELS[verdict])


def title(verdict: Verdict) -> str:
    """Return the translated label as the beginning of a sentence."""
    return as_title(label(verdict))


def as_title(text: str) -> str:
    """Return a translated label with an initial capital, if its script has capitals.

    >>> as_title("does not fit")
    'Does not fit'
    """
    return text[:1].upper() + text[1:]


def short(verdict: Verdict, tokens: float | None) -> str:
    """Return the label for a cell, with the mean length up to which a run fits if it is known."""
    if tokens is None:
        return label(verdict)
    return _("{verdict}: up to {tokens} tokens").format(verdict=label(verdict), tokens=two_digits(tokens))


def why(layout: Layout, reason: str | None = None) -> str:
    """Return the figures of a layout, the reason of its verdict, and the lengths up to which it fits.

    Args:
        layout: the layout.
        reason: the reason; by default that of the layout, which recorded runs can contradict.
    """
    found, key = layout.estimate, str(layout.reason)
    if reason == "ran" != key:
        key = "contradicted"
    if found.undecided:
        settings = "; ".join(found.undecided)
        return _("Settings that determine memory cannot be read: {settings}.").format(settings=settings)
    if found.capacity is None:
        return _("The memory of the GPU is unknown.")
    shown, tokens, (room, needed) = credible(found), found.fits_up_to_tokens, layout.cache
    if found.ran and found.high > found.capacity:
        key = "bounded" if shown else "ran"
    sizes = {"peak": found.peak, "low": found.low, "high": found.high, "capacity": found.capacity}
    peak = _(PEAK).format(**{name: whole(size) for name, size in sizes.items()})
    text = _(REASONS[key]).format(room=two_digits(room), needed=short_number(int(needed)))
    texts = [text] if key == "no-bfloat16" else [peak, text]
    if tokens is not None and key != "ran":
        up_to = _("It fits up to a mean of {tokens} tokens per sequence, prompt and response.")
        texts.append(up_to.format(tokens=two_digits(tokens)))
    if shown is not None and shown is not found:
        mean = _("The figures below are for a mean of {tokens} tokens per sequence.")
        texts.append(mean.format(tokens=two_digits(shown.settings.lengths.mean)))
    return in_a_row(*texts)


# -- evidence and trust


def run_name(run: Run) -> str:
    """Return the title of a run, in words if its GPU is unknown."""
    if run.gpus.type or run.gpus.memory_gb:
        return run_title(run)
    text = _("{model}, {task} on {count} GPUs of unknown type")
    return text.format(model=run.short_name, task=run.task, count=run.gpus.count)


def measured(run: Run, estimate: Estimate | None) -> str:
    """Return the measured figure of a run beside the estimate of the same counter; empty if there is none."""
    if not run.measured or not run.measured.gib:
        return ""
    counter, low, high = run.measured.counter, 0.0, 0.0
    text = _("{size} ({counter})")
    if estimate and figures(estimate) and counter == "torch-max-allocated":
        text, (low, high) = _("{size} ({counter}; estimated {low} to {high} GiB)"), estimate.torch_peak_range
    size, counted = gib(run.measured.gib * GIB), _(COUNTERS[counter])
    return text.format(size=size, counter=counted, low=whole(low), high=whole(high))


def _evidence(answer: Answer) -> Iterator[Line]:
    """Yield the relevant recorded runs by their evidence word; a run that ran needs no other."""
    own, contested, most = answer.own, answer.contested, MOST
    if own and own.word == "ran" and own.id not in contested:
        most = 0
    others = [run for run in answer.evidence if run is not own and run.id not in contested][:most]
    for word, text in WORD_TEXTS.items():
        runs, name = tuple(run for run in others if run.word == word), as_title(_(text))
        if answer.verdict == "does-not-fit":
            name = _("{word} with other settings").format(word=name)
        yield Line(word, name, "{runs}." if runs else "", runs)
    for run in answer.evidence:
        if run.id in contested:
            *_rest, repository, _kind, issue = contested[run.id].split("/")
            text = _("{runs}; another user ran out of memory ({report}).")
            text = text.replace("{report}", f"{repository} #{issue}")
            yield Line("contested", as_title(_(WORD_TEXTS[run.word])), text, (run,))


def checks(trust: Trust) -> str:
    """Return the number of measured runs of this kind and the errors of their estimates."""
    known = trust.accuracy
    if known is None:
        text = _("No run of this kind was measured; the range allows for {error} %, the error of other runs.")
        return text.format(error=round(100 * trust.error))
    text = plural(
        "Checked against one measured run of this kind ({compared}): {mean} % off.",
        "Checked against {count} measured runs of this kind ({compared}) from {sources}: {mean} % off on "
        "average, at most {worst} %; {more} of {count} needed more than estimated.",
        known.cases,
    )
    mean, worst = round(100 * known.mean_error), round(100 * known.worst_error)
    sources = plural("one source", "{count} sources", known.sources).format(count=known.sources)
    counts = {"count": known.cases, "more": known.needed_more, "sources": sources}
    return text.format(compared=known.compared, mean=mean, worst=worst, **counts)


def _sure(answer: Answer) -> Line:
    runs: tuple[Run, ...] = ()
    more = "" if answer.evidence else _("No comparable run is recorded.")
    if answer.trust.undercuts and answer.trust.smallest:
        runs = (answer.trust.smallest,)
        more = _("No run with so little GPU memory is recorded; the smallest is {runs}.")
    return Line("sure", _("How sure"), in_a_row(checks(answer.trust), more), runs)


# -- layout, host memory, other releases and changes


def layout_text(layout: Layout) -> str:
    """Return the backend, the GPUs and the token budget."""
    gpus, budget = f"{layout.estimate.settings.gpus}×{layout.request.gpu or 'GPU'}", layout.token_budget
    text = _("{layout} on {gpus}.")
    more = _("Micro-batches have up to {tokens} tokens per GPU.") if budget else ""
    return in_a_row(text, more).format(layout=layout.name, gpus=gpus, tokens=short_number(budget or 0))


def offloaded(layout: Layout) -> str:
    """Return what is offloaded to host memory, or that nothing is."""
    parts = [_(part) for part in PARTS if part in layout.offloaded]
    text = _("{sentence}.").format(sentence=_(", ").join(parts) or _("nothing"))
    return in_a_row(text, _("Adam runs on the CPU: slow.") if "adam-on-cpu" in layout.offloaded else "")


def host(layout: Layout) -> str:
    """Return the host memory that a node needs, and the limit."""
    given, size = layout.given_host_limit, about(layout.estimate.host.total)
    if given is None:
        text = _("about {size} GiB per node; {limit} GiB assumed (twice the GPUs' memory).")
        return text.format(size=size, limit=about(layout.host_limit))
    return _("about {size} GiB per node; {limit} GiB given.").format(size=size, limit=whole(given))


def _release(answer: Answer) -> str:
    """Return the verdict with another release of verl if it differs, and the cause if it is known."""
    other, best = answer.other_release, answer.best
    if other is None:
        return ""
    own, peak, version = best.request.version, other.estimate.peak, version_text(best.request.version)
    text = _("{verdict} with verl {other} instead of {version} (peak {peak} GiB).")
    names = {"verdict": title(other.verdict), "other": version_text(other.request.version)}
    if behaviour(own).unsharded_gradients and not best.is_megatron and peak < best.estimate.peak:
        cause = _("FSDP in {version} keeps whole gradients on every GPU until the last micro-batch.")
        text = in_a_row(text, cause)
    return text.format(version=version, peak=whole(peak), **names)


def heading(answer: Answer) -> str:
    """Return the title of an answer's changes, of which there is at least one."""
    if answer.changes[0].verdict != "fits":
        return _("Nothing makes it fit; this comes closest")
    return _("What makes it fit") if answer.verdict == "does-not-fit" else _("If it runs out of memory")


def change_text(change: Change, settings: str = "", seen: Collection[str] = ()) -> str:
    """Return a change as a sentence, with its caveats.

    Args:
        change: the change.
        settings: what to write instead of its settings, such as a placeholder.
        seen: caveats to leave out.
    """
    settings = settings or " ".join(change.arguments)
    text = _("{settings}: peak {peak} GiB (up to {high}), {cost}: {verdict}.")
    peak, high, cost = whole(change.peak), whole(change.high), _(COSTS[change.cost])
    text = text.format(settings=settings, peak=peak, high=high, cost=cost, verdict=label(change.verdict))
    return in_a_row(text, *(_(caveat) for caveat in change.caveats if caveat not in seen))


# -- numbers and sentences


def in_a_row(*sentences: str) -> str:
    """Join sentences as the language does, without empty ones."""
    return _("{sentence} {next}").format(sentence="", next="").join(filter(None, sentences))


def whole(size: float) -> str:
    """Return bytes in whole GiB, without the unit.

    >>> whole(1061.7 * 2**30)
    '1,062'
    """
    return f"{round(size / GIB):,}"


def about(size: float) -> str:
    """Return bytes in GiB, rounded to two digits, without the unit.

    >>> about(1374 * 2**30), about(7.3 * 2**30)
    ('1,400', '7.3')
    """
    rounded = float(f"{size / GIB:.2g}")
    return f"{rounded:,.0f}" if rounded >= 10 else f"{rounded:g}"


def two_digits(count: float) -> str:
    """Return a count rounded down to two digits, with commas: ``1,900`` for 1,937.6.

    >>> two_digits(1937.6), two_digits(87.2), two_digits(0.4)
    ('1,900', '87', '0')
    """
    rest = int(count)
    step = 10 ** max(0, len(str(rest)) - 2)
    return f"{rest // step * step:,}"
