"""The sentences about an answer, translated and without markup.

Pages, ``plan`` and the form say the same, because each of them shows the lines of this module.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import NamedTuple

from ..i18n import N_, _, plural
from ..memory.estimate import Estimate
from ..memory.recorded import credible, figures
from ..memory.request import Verdict
from ..memory.versions import behaviour, version_text
from ..nodes import listed
from ..records import Run
from ..registries import Gpu
from ..texts import WORD_TEXTS, run_title
from ..units import GIB, gib
from .answer import Answer
from .changes import Change
from .evidence import contested_by
from .levers import ROUNDS
from .search import ON_CPU, Layout

LABELS: Mapping[str, str] = {
    "fits": N_("fits"),
    "borderline": N_("borderline"),
    "depends-on-lengths": N_("depends on the lengths"),
    "does-not-fit": N_("does not fit"),
    "unknown": N_("unknown"),
}
#: The reasons of verdicts, see ``search.REASONS``. Three more: a run that ran with the GPU's memory inside
#: the range, sequences that are too long for the model, and recorded runs that contradict an estimate.
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
    "positions": N_("Sequences can be longer than the model's positions, which verl rejects."),
    "contradicted": N_("Recorded runs contradict this: it is too high, or their sequences were short."),
}
COSTS: Mapping[str, str] = {"little": N_("costs little time"), "much": N_("costs a lot of time")}
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
    """One titled paragraph about an answer.

    Attributes:
        name: its key, the same in every language: verdict, model, measured, ran, reported, claimed,
            contested, layout, offloaded, host, sure, release, speed, assumed.
        title: its title; empty for the reason of the verdict, which follows the verdict's own label.
        text: its sentences; ``{runs}`` is replaced by the names of ``runs``.
        runs: the recorded runs that it names.
    """

    name: str
    title: str
    text: str
    runs: tuple[Run, ...] = ()

    @property
    def plain(self) -> str:
        """The text without links."""
        return self.text.replace("{runs}", listed(dict.fromkeys(map(run_title, self.runs))))


def lines(answer: Answer, group: Iterable[Gpu] = ()) -> list[Line]:
    """Return what to say about an answer, the reason of its verdict first.

    Args:
        answer: the answer.
        group: the GPUs that it is for, besides that in question; a recorded speed may be on any of them.
    """
    best, note = answer.best, answer.request.model_note
    content = [Line("verdict", "", why(best, answer.reason)), Line("model", _("Model"), note)]
    content.append(Line("measured", _("Measured"), _sentence([measured_text(answer.own, best.estimate)])))
    content += _evidence(answer)
    if answer.reason not in ("unknown", "no-bfloat16"):
        content += [*_layout(answer), _sure(answer), *_release(answer), *_speed(answer, group)]
    assumptions = _sentence(text for text in answer.assumed if text != note)
    return [line for line in (*content, Line("assumed", _("Assumed"), assumptions)) if line.text]


# -- the verdict


def label(verdict: Verdict) -> str:
    """Return the translated label of a verdict."""
    return _(LABELS[verdict])


def as_title(text: str) -> str:
    """Return a translated label with an initial capital, if its script has capitals.

    >>> as_title("does not fit")
    'Does not fit'
    """
    return text[:1].upper() + text[1:]


def short(verdict: Verdict, tokens: float | None) -> str:
    """Return the label for a cell, with the mean length up to which a run fits if it is known."""
    text = "{verdict}" if tokens is None else _("{verdict}: up to {tokens} tokens")
    return text.format(verdict=label(verdict), tokens=two_digits(tokens or 0))


def why(layout: Layout, reason: str) -> str:
    """Return the figures of a layout, the reason of its verdict, and the lengths up to which it fits.

    Args:
        layout: the layout.
        reason: the reason; unlike that of the layout, it considers recorded runs and the model's positions.
    """
    estimate, others = layout.estimate, {"ran": "contradicted", "lengths": "positions"}
    key = reason if reason == layout.reason else others[reason]
    if estimate.undecided:
        text = _("Settings that determine memory cannot be read: {settings}.")
        return text.format(settings="; ".join(estimate.undecided))
    if estimate.capacity is None:
        return _("The memory of the GPU is unknown.")
    basis, tokens, (room, needs) = credible(estimate), estimate.fits_up_to_tokens or 0, layout.kv_cache_tokens
    if estimate.ran and estimate.high > estimate.capacity:
        key = "bounded" if basis else "ran"
    texts = [_(REASONS[key])]
    if key != "no-bfloat16":
        texts.insert(0, _("Peak {peak} GiB per GPU (range {low} to {high}); the GPU has {capacity} GiB."))
    if tokens and key != "ran":
        texts.append(_("It fits up to a mean of {tokens} tokens per sequence, prompt and response."))
    if basis and basis is not estimate:  # then it is for sequences of this mean
        texts.append(_("The figures below are for a mean of {tokens} tokens per sequence."))
    sizes = {name: whole(getattr(estimate, name)) for name in ("peak", "low", "high", "capacity")}
    counts = {"tokens": two_digits(tokens), "room": two_digits(room), "needed": f"{int(needs):,}"}
    return in_a_row(*texts).format(**sizes, **counts)


# -- evidence and accuracy


def measured_text(run: Run | None, estimate: Estimate | None) -> str:
    """Return the measured figure of a run beside the estimate of the same counter; empty if there is none."""
    if not run or not run.measured or not run.measured.gib:
        return ""
    text, (low, high) = _("{size} ({counter})"), (0.0, 0.0)
    if estimate and figures(estimate) and run.measured.counter == "torch-max-allocated":
        text, (low, high) = _("{size} ({counter}; estimated {low} to {high} GiB)"), estimate.torch_peak_range
    size, counter = gib(run.measured.gib * GIB), _(COUNTERS[run.measured.counter])
    return text.format(size=size, counter=counter, low=whole(low), high=whole(high))


def _evidence(answer: Answer) -> Iterator[Line]:
    """Yield the relevant recorded runs by their evidence word; a run that ran needs no other."""
    own = answer.own
    others = [run for run in answer.evidence if run is not own and not contested_by(run)][:MOST]
    is_proven = own is not None and own.word == "ran" and not contested_by(own)
    is_other = answer.verdict == "does-not-fit" or (answer.is_open and answer.best.rounds)
    name = _("{word} with other settings") if is_other else "{word}"
    for word, text in WORD_TEXTS.items():
        runs = tuple(run for run in others if run.word == word and not is_proven)
        yield Line(word, name.format(word=as_title(_(text))), "{runs}." if runs else "", runs)
    for run in answer.evidence:
        if url := contested_by(run):
            *_rest, repository, _kind, issue = url.split("/")
            text = _("{runs}; another user ran out of memory ({report}).")
            text = text.replace("{report}", f"{repository} #{issue}")
            yield Line("contested", as_title(_(WORD_TEXTS[run.word])), text, (run,))


def _sure(answer: Answer) -> Line:
    """Return the errors of estimates of this kind, and whether there is no run that is comparable."""
    accuracy, smallest = answer.accuracy, answer.undercuts
    text = _(
        "This kind of run was not measured. For other kinds, mostly fine-tuning, nine in ten estimates were "
        "at most {error} % off."
    )
    text = text.format(error=round(100 * answer.best.estimate.errors[0]))
    if accuracy:
        text = plural(
            "Checked against one measurement of this kind ({name}: {compared}): {mean} % off.",
            "Checked against {cases} measurements of this kind ({name}: {compared}), {setups} set-ups from "
            "{sources}: {mean} % off on average, at most {worst} %; {needed_more} needed more than computed.",
            accuracy.cases,
        )
        mean, worst = round(100 * accuracy.mean_error), round(100 * accuracy.worst_error)
        sources = plural("one source", "{count} sources", accuracy.sources).format(count=accuracy.sources)
        text = text.format(**{**vars(accuracy), "sources": sources}, mean=mean, worst=worst)
    more = _("No comparable run used this few GPUs of this size with sequences this long.")
    more = "" if answer.evidence else more
    if smallest:
        more = _("No comparable run on known GPUs used this little GPU memory; the smallest is {runs}.")
    return Line("sure", _("Accuracy"), in_a_row(text, more), (smallest,) if smallest else ())


# -- recorded runs


def span(low: float, high: float) -> str:
    """Return a range of bytes in whole GiB, without the unit."""
    return _("{low} to {high}").format(low=whole(low), high=whole(high))


def peaks_text(run: Run, estimate: Estimate | None) -> str:
    """Return the estimated peak of a run, and what was measured."""
    texts = []
    if estimate and (ends := figures(estimate)):
        texts.append(_("estimated peak {range} GiB").format(range=span(ends[0], ends[2])))
    elif estimate and not estimate.undecided:
        texts.append(_("the estimate is above the GPU's memory"))
    if text := measured_text(run, estimate):
        texts.append(_("measured {text}").format(text=text))
    return _(", ").join(texts)


# -- layout, host memory, other releases and changes


def _layout(answer: Answer) -> Iterator[Line]:
    """Yield the layout, what it offloads, and the host memory that a node needs, with the limit."""
    best, limit, settings = answer.best, answer.best.given_host_limit, answer.best.estimate.settings
    if not answer.own:
        gpus, micro = f"{settings.gpus}×{answer.request.gpu or 'GPU'}", settings.actor.micro_batch
        more = _("Micro-batches have up to {tokens} tokens per GPU.") if micro.dynamic else ""
        text = in_a_row(_("{layout} on {gpus}."), more, _(ROUNDS) if best.rounds else "")
        text = text.format(layout=best.name, gpus=gpus, tokens=f"{micro.tokens:,}")
        yield Line("layout", _("Layout"), text)
    parts = [_(part) for part in best.offloaded if part != ON_CPU] or [_("nothing")]
    more = _("Adam runs on the CPU: slow.") if ON_CPU in best.offloaded else ""
    yield Line("offloaded", _("Offloaded to host memory"), in_a_row(_sentence(parts), more))
    text = _("about {size} GiB per node; {limit} GiB assumed (twice the GPUs' memory).")
    text = _("about {size} GiB per node; {limit} GiB given.") if limit else text
    of_node = whole(limit) if limit else about(best.host_limit)
    yield Line("host", _("Host memory"), text.format(size=about(best.estimate.host.total), limit=of_node))


def _speed(answer: Answer, group: Iterable[Gpu]) -> Iterator[Line]:
    """Yield the nearest recorded speed, unless it does not fit or is a recorded run itself."""
    if answer.request.gpu and not answer.own and answer.verdict != "does-not-fit":
        speed = answer.speed(group)
        text = speed.sentence if speed else _("No run of this kind has a recorded speed.")
        yield Line("speed", _("Speed"), text, (speed.timed.run,) if speed else ())


def _release(answer: Answer) -> Iterator[Line]:
    """Yield the verdict with another release of verl if it differs, and the cause if it is known."""
    own, other = answer.best, answer.other_release
    if other:
        newer, older = version_text(own.request.version), version_text(other.request.version)
        text = _("{verdict} with verl {other} instead of {version} (peak {peak} GiB).")
        if behaviour(own.request.version).unsharded_gradients and other.estimate.peak < own.estimate.peak:
            cause = _("FSDP in {version} keeps whole gradients on every GPU until the last micro-batch.")
            text = in_a_row(text, cause)
        figures = {"verdict": as_title(label(other.verdict)), "peak": whole(other.estimate.peak)}
        yield Line("release", _("Other release"), text.format(other=older, version=newer, **figures))


def heading(answer: Answer) -> str:
    """Return the title of an answer's changes, of which there is at least one."""
    if answer.changes[0].verdict != "fits":
        return _("Nothing makes it fit; this comes closest")
    return _("What makes it fit") if answer.verdict == "does-not-fit" else _("If it runs out of memory")


def change_text(change: Change, settings: str = "", omissions: Collection[str] = ()) -> str:
    """Return a change as a sentence, and what its settings do.

    Args:
        change: the change.
        settings: what to write instead of its settings, such as a placeholder.
        omissions: sentences to leave out.
    """
    settings = settings or " ".join(change.arguments)
    text = _("{settings}: peak {peak} GiB (up to {high}): {verdict}")
    figures = {"peak": whole(change.peak), "high": whole(change.high), "verdict": label(change.verdict)}
    cost = _(COSTS[change.cost]) if change.cost in COSTS else ""
    text = _sentence(filter(None, [text.format(settings=settings, **figures), cost]))
    return in_a_row(text, *(_(each) for each in change.sentences if each not in omissions))


# -- numbers and sentences


def _sentence(texts: Iterable[str]) -> str:
    """Return texts as one sentence; an empty text if there are none."""
    text = listed(texts)
    return text and _("{sentence}.").format(sentence=text)


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
    number = float(f"{size / GIB:.2g}")
    return f"{number:,.0f}" if number >= 10 else f"{number:g}"


def two_digits(count: float) -> str:
    """Return a count rounded down to two digits, with commas: ``1,900`` for 1,937.6.

    >>> two_digits(1937.6), two_digits(87.2), two_digits(0.4)
    ('1,900', '87', '0')
    """
    step = 10 ** max(0, len(str(int(count))) - 2)
    return f"{int(count) // step * step:,}"
