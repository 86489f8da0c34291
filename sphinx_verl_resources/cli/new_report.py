"""The report of ``verl-resources new``: the row, the estimate beside the measured figure, open TODOs."""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ..catalog.links import Links
from ..catalog.models.base import models_in
from ..catalog.models.run import Run
from ..catalog.names import PAGE_COLUMNS
from ..catalog.run_text import TODO
from ..diagnostics import NoAnswerError
from ..estimator.case import request_of_run
from ..estimator.estimate import estimate
from ..estimator.export import result_of
from ..views.exports import runs_text

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ..estimator.registries import Registries

_COUNTED = "torch-max-allocated"


@dataclass(frozen=True)
class NewRun:
    """A new run file.

    Attributes:
        shown: its path.
        written: whether it is on disk.
        text: its text.
        fields: by name.
        todo: lines with a TODO, by number.
        estimate: as plain values, if there is one.
        no_estimate: why there is none.
    """

    shown: str
    written: bool
    text: str
    fields: Mapping[str, Any]
    todo: Mapping[int, str]
    estimate: Mapping[str, Any] | None
    no_estimate: str

    @property
    def next(self) -> str:
        """Return the command to run next."""
        return f"verl-resources check {shlex.quote(self.shown)}"

    @property
    def measured(self) -> float | None:
        """Return the peak of allocated memory that the log reports, in GiB."""
        measured = self.fields.get("measured", {})
        return measured.get("gib") if measured.get("counter") == _COUNTED else None

    @property
    def difference(self) -> float | None:
        """Return the relative difference of the computed figure from the measured one."""
        if not self.measured or self.estimate is None:
            return None
        return float(self.estimate["logged_max_allocated_gib"]) / self.measured - 1

    def plain(self) -> dict[str, Any]:
        """Return the report for programs."""
        return {
            "path": self.shown,
            "written": self.written,
            "id": self.fields["id"],
            "text": self.text,
            "todo": [{"line": number, "text": line} for number, line in self.todo.items()],
            "estimate": self.estimate,
            "no_estimate": self.no_estimate or None,
            "measured_gib": self.measured,
            "difference": None if self.difference is None else round(self.difference, 4),
            "next": self.next,
        }


def result_of_new(
    fields: Mapping[str, Any], text: str, shown: str, registries: Registries, *, written: bool
) -> NewRun:
    """Return what there is to report about a new file."""
    todo = {
        number: code.strip()
        for number, line in enumerate(text.splitlines(), 1)
        if not line.startswith("#") and TODO in (code := line.partition("  # ")[0])
    }
    computed, why = _estimate(fields, registries)
    return NewRun(shown, written, text, fields, todo, computed, why)


def report_text(new: NewRun) -> str:
    """Return the report as text."""
    parts = [f"wrote {new.shown}" if new.written else new.text.rstrip("\n")]
    parts.append(runs_text([_unchecked_run(new.fields)], PAGE_COLUMNS, Links(), "plain"))
    parts.append("\n".join(_estimate_lines(new)))
    if new.todo:
        lines = [f"  {new.shown}:{number}: {line}" for number, line in new.todo.items()]
        parts.append("\n".join(["still to be filled in:", *lines]))
    if new.written:
        parts.append(f"next: {new.next}")
    return "\n\n".join(parts)


def _estimate_lines(new: NewRun) -> list[str]:
    found = new.estimate
    if found is None:
        return [f"no estimate: {new.no_estimate}"]
    capacity = f" of {found['capacity_gib']:.1f} GiB" if found["capacity_gib"] else ""
    lines = [
        f"estimate: {found['peak_gib']:.1f} GiB{capacity} per GPU at the peak, in the phase "
        f"{found['binding_phase']} (range {found['low_gib']:.1f} to {found['high_gib']:.1f} GiB; "
        f"{found['verdict']})"
    ]
    counted = f"{found['logged_max_allocated_gib']:.1f} GiB"
    ends = f"range {found['logged_low_gib']:.1f} to {found['logged_high_gib']:.1f} GiB"
    if new.difference is None or new.measured is None:
        lines.append(f"perf/max_memory_allocated_gb: computed {counted} ({ends}), not measured")
        return lines
    inside = found["logged_low_gib"] <= new.measured <= found["logged_high_gib"]
    off = f"{abs(new.difference):.1%} {'more' if new.difference > 0 else 'less'}".replace("%", " %")
    lines.append(
        f"perf/max_memory_allocated_gb: measured {new.measured:.1f} GiB, "
        f"{'within' if inside else 'OUTSIDE'} the {ends}; computed {counted}, {off}"
    )
    if not inside:
        lines.append("  is it the log of this script? If so, a note in the file can say why it differs")
    return lines


def _estimate(fields: Mapping[str, Any], registries: Registries) -> tuple[dict[str, Any] | None, str]:
    """Return an estimate as plain values, or the reason why there is none."""
    missing = [name for name in ("model", "task", "train") if fields[name] == TODO]
    missing += ["gpus.count"] if fields["gpus"]["count"] == TODO else []
    if missing:
        return None, f"{', '.join(missing)} not known"
    gpus, infer = fields["gpus"], fields["infer"]
    known = {
        **fields,
        "gpus": {**gpus, "type": None if gpus["type"] == TODO else gpus["type"]},
        "infer": None if infer["engine"] == TODO else infer,
    }
    try:
        found = estimate(request_of_run(_unchecked_run(known), registries), registries)
        return result_of(fields["id"], found), ""
    except NoAnswerError as error:
        return None, str(error)


def _unchecked_run(fields: Mapping[str, Any]) -> Run:
    """Return a run of any fields, without checks: a TODO is text wherever it stands.

    >>> _unchecked_run({"id": "a", "gpus": {"count": 2, "type": "TODO"}}).gpus.type
    'TODO'
    """
    made: dict[str, Any] = {"settings": {}, "infer": None, "evidence": ()}
    for name, value in fields.items():
        made[name] = value
        for model in models_in(Run.model_fields[name].annotation):
            if isinstance(value, list):
                made[name] = tuple(model.model_construct(**item) for item in value)
            elif value is not None:
                made[name] = model.model_construct(**value)
    return Run.model_construct(**made)
