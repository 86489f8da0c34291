"""The speed of a run from the figures of its steps.

What a step contains changed between releases: verl/trainer/ppo/ray_trainer.py, v0.3.0 to v0.9.0. verl
counts prompts and responses of the trained batch in ``perf/total_num_tokens``; its ``perf/throughput``
divides by the GPUs of the trainer or by all, depending on trainer and release.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from ..memory.versions import Version

#: The figures of a step, by verl's names.
Step = Mapping[str, float]

_TOKENS, _TIME, _THROUGHPUT = "perf/total_num_tokens", "perf/time_per_step", "perf/throughput"
_PROMPT, _RESPONSE = "prompt_length/mean", "response_length/mean"
_OLD_TIME, _MFU = "timing_s/step", "perf/mfu/actor"
_TESTING, _SAVING = "timing_s/testing", "timing_s/save_checkpoint"
#: The names that are read here.
NAMES = (_TOKENS, _TIME, _THROUGHPUT, _PROMPT, _RESPONSE, _OLD_TIME, _MFU, _TESTING, _SAVING)
#: The number of a step, beside its figures.
STEP = "step"
#: The steps of warm-up, which do not count, and the least that must count for a speed.
WARM_UP, LEAST = 2, 10


class Speed(NamedTuple):
    """The speed of a run.

    Attributes:
        fields: the fields of ``measured``.
        missing: why tokens per second are not among them, if the log has tokens.
        remedy: what to do about it.
        note: how verl's own figure differs.
    """

    fields: dict[str, Any]
    missing: str = ""
    remedy: str = ""
    note: str = ""


def speed_of(steps: Sequence[Step], gpus: int | None, version: Version | None) -> Speed:
    """Return the speed over the steps that count; if none does, the means of all steps.

    Args:
        steps: the figures of each line of a run, with its ``step``.
        gpus: the number of all GPUs of the job; None if unknown.
        version: the release of verl; None if unknown.

    >>> steps = [
    ...     {"step": at, "perf/total_num_tokens": 8000.0, "perf/time_per_step": 10.0} for at in range(13)
    ... ]
    >>> fields = speed_of(steps, 8, None).fields
    >>> fields["tokens_per_second_per_gpu"], fields["steps"]
    (100.0, 10)
    """
    # Step 0 is a validation before training; a step that was logged twice counts once.
    trained = [*{step[STEP]: step for step in steps if step[STEP] and _time(step)}.values()]
    counted = [*_counted(trained, version)]
    used = counted or trained or steps
    times = [time for step in used if (time := _time(step))]
    responses = [(step[_RESPONSE], _sequences(step)) for step in used if _RESPONSE in step]
    fields: dict[str, Any] = {"step_seconds": round(_mean(times), 1)}
    if len(counted) > 1:
        fields["step_seconds_range"] = (round(min(times), 1), round(max(times), 1))
    fields["steps"] = len(counted) or int(len(times) == 1)
    fields["mfu"] = round(_mean([step[_MFU] for step in used if _MFU in step]), 3)
    sequences = sum(number for _mean, number in responses)
    fields["response_tokens"] = round(sum(mean * number for mean, number in responses) / (sequences or 1))
    with_tokens = [step for step in counted if step.get(_TOKENS)]
    speed = Speed(fields)
    if len(with_tokens) >= LEAST and gpus:
        tokens, seconds = (sum(step[name] for step in with_tokens) for name in (_TOKENS, _TIME))
        fields = {"tokens_per_second_per_gpu": round(tokens / seconds / gpus, 1), **fields}
        speed = Speed(fields, note=_note(with_tokens, gpus))
    elif len(with_tokens) >= LEAST:
        speed = Speed(fields, "the number of GPUs is unknown", "give it with --gpus, as in 8xH100")
    elif any(_TOKENS in step for step in steps):
        late, needs = len(trained[WARM_UP:]), f"and {LEAST} are needed"
        message = f"{len(with_tokens)} steps count after {WARM_UP} of warm-up, {needs}"
        remedy = "give a longer log"
        if late >= LEAST:
            message = f"{len(with_tokens)} of {late} steps have no validation or checkpoint, {needs}"
            remedy = "give a log with fewer of them"
            if version is None:
                remedy += ", or one that names verl's release: in some, they are outside the step"
        speed = Speed(fields, message, remedy)
    return speed._replace(fields={name: value for name, value in fields.items() if value})


def _counted(trained: Sequence[Step], version: Version | None) -> Iterator[Step]:
    """Yield the steps after the warm-up without what does not belong to a step.

    Only some releases have validation or checkpoints inside the time of a step.
    """
    inside = [_TESTING] if version is None or version < (0, 6, 0) else []
    inside += [_SAVING] if version is None or not (0, 6, 0) <= version < (0, 7, 1) else []
    return (step for step in trained[WARM_UP:] if not any(map(step.get, inside)))


def _note(counted: Sequence[Step], gpus: int) -> str:
    """Return whether verl's own figure is for another number of GPUs."""
    own = sum(step[_TIME] * step.get(_THROUGHPUT, 0) for step in counted)
    tokens = sum(step[_TOKENS] for step in counted if step.get(_THROUGHPUT))
    counts = round(tokens / own) if own else gpus
    if counts == gpus:
        return ""
    return f"perf/throughput in the log is for {counts} GPUs, the recorded speed for {gpus}"


def _time(step: Step) -> float:
    """Return the seconds of a step; 0 if unknown."""
    return step.get(_TIME) or step.get(_OLD_TIME, 0)


def _sequences(step: Step) -> float:
    """Return the number of sequences of a step; 1 if unknown."""
    mean = step.get(_PROMPT, 0) + step[_RESPONSE]
    return step.get(_TOKENS, 1) / mean if _PROMPT in step and mean else 1


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values) if values else 0
