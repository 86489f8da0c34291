"""The rule of ``verl-resources check`` about the tag RECOMMENDED."""

from __future__ import annotations

from collections.abc import Iterator

from ..check import Check, Finding, rule
from ..diagnostics import Severity
from ..records import Run
from .runs import Timed, timed_runs

#: Equal runs differed by up to this share; a smaller difference is a tie.
SPREAD = 0.16
#: Runs whose mean responses differ by more than this share are not comparable.
_LENGTHS = 0.1
#: What comparable runs may differ in.
_MAY_DIFFER = {"backend", "engine"}
_REMEDY = "name another run, or change the tag"


@rule(Severity.WARNING)
def not_faster(check: Check) -> Iterator[Finding]:
    """Require of RECOMMENDED that the run was faster than the runs in ``recommended_over``.

    It has over 16 % more tokens per second and GPU, since equal runs have differed by up to that much. Model,
    task, GPUs, trainer, lengths and sequences a step are stated and the same. No run with the same set-up is
    that much faster.

    Bad::

        tag: RECOMMENDED
        measured: {tokens_per_second_per_gpu: 520}  # qwen2-5-7b-grpo-8xh100-tp4 has 500
        recommended_over: [qwen2-5-7b-grpo-8xh100-tp4]

    Good::

        tag: RECOMMENDED
        measured: {tokens_per_second_per_gpu: 600}
        recommended_over: [qwen2-5-7b-grpo-8xh100-tp4]
    """
    timed = {each.run.id: each for each in timed_runs(check.data)}
    for run, document in check.runs:
        others, is_tagged = run.recommended_over, run.tag == "RECOMMENDED"
        place = document.place(("tag" if is_tagged else "recommended_over",))
        if is_tagged and not others:
            yield (
                place,
                "RECOMMENDED needs recommended_over",
                "name the slower runs there, or write 'tag: null'",
            )
        if others and not is_tagged:
            yield place, "recommended_over needs RECOMMENDED", "write this tag, or remove recommended_over"
        for index, name in enumerate(others):
            if reason := _objection(run, name, timed):
                message = f"{run.id} is not shown to be faster than {name!r}: {reason}"
                yield document.place(("recommended_over", index)), message, _REMEDY
        for other in timed.values() if others and run.id in timed else ():
            if not _contrast(timed[run.id], other) and _gain(other, timed[run.id]) > SPREAD:
                yield place, f"{other.run.id} is faster with the same set-up", "tag that run instead"


def _objection(run: Run, name: str, timed: dict[str, Timed]) -> str:
    """Return why a run is not shown to be faster than the run ``name``; empty if it is."""
    for each in (run.id, name):
        if each not in timed or not timed[each].speed:
            return f"{each} has no tokens_per_second_per_gpu over ten steps on a known GPU"
    own, other = timed[run.id], timed[name]
    if differs := _contrast(own, other):
        return f"they differ in, or do not state, {', '.join(differs)}"
    gain = _gain(own, other)
    return "" if gain > SPREAD else f"{gain:+.1%} is not above the spread of equal runs, {SPREAD:.0%}"


def _gain(own: Timed, other: Timed) -> float:
    return own.speed / other.speed - 1 if other.speed else 0


def _contrast(own: Timed, other: Timed) -> list[str]:
    """Return the fields of two set-ups that differ or are not stated, and that of the mean responses."""
    differences = {*own.setup.differs(other.setup), *own.setup.unstated, *other.setup.unstated} - _MAY_DIFFER
    means = [mean for each in (own, other) if (mean := each.measured.response_tokens)]
    if max(means, default=0) > (1 + _LENGTHS) * min(means, default=0):
        differences.add("response_tokens")
    return sorted(differences)
