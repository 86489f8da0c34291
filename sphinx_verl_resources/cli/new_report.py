"""What ``verl-resources new`` prints: the row, the estimate beside what was measured, what is left to do."""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ..catalog.links import Links
from ..catalog.names import PAGE_COLUMNS
from ..diagnostics import NoAnswerError
from ..estimator.case import request_of_run
from ..estimator.estimate import estimate
from ..estimator.result import result_of
from ..intake.draft import TODO
from ..intake.rough import rough_run
from ..views.text_table import runs_text

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ..estimator.registries import Registries

_COUNTED = "torch-max-allocated"


@dataclass(frozen=True)
class NewRun:
    """A run file that was made.

    Attributes:
        shown: its path.
        written: it is on disk.
        text: all of it.
        fields: what it says.
        todo: lines that still hold TODO, by their number.
        estimate: as plain values; None where there is none.
        no_estimate: why.
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
        """The command to run next."""
        return f"verl-resources check {shlex.quote(self.shown)}"

    @property
    def measured(self) -> float | None:
        """The peak of allocated memory that the log reports, in GiB."""
        measured = self.fields.get("measured", {})
        return measured.get("gib") if measured.get("counter") == _COUNTED else None

    @property
    def difference(self) -> float | None:
        """How far the computed figure lies from the measured one, as a share of the latter."""
        if not self.measured or self.estimate is None:
            return None
        return float(self.estimate["logged_max_allocated_gib"]) / self.measured - 1

    def plain(self) -> dict[str, Any]:
        """The same for programs."""
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
    fields: Mapping[str, Any], text: str, shown: str, facts: Registries, *, written: bool
) -> NewRun:
    """What there is to say of a file that was made."""
    todo = {
        number: said.strip()
        for number, line in enumerate(text.splitlines(), 1)
        if TODO in (said := line.partition("  # ")[0])
    }
    computed, why = _estimate(fields, facts)
    return NewRun(shown, written, text, fields, todo, computed, why)


def report_text(new: NewRun) -> str:
    """All of it as text."""
    parts = [f"wrote {new.shown}" if new.written else new.text.rstrip("\n")]
    parts.append(runs_text([rough_run(new.fields)], PAGE_COLUMNS, Links(), "plain"))
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


def _estimate(fields: Mapping[str, Any], facts: Registries) -> tuple[dict[str, Any] | None, str]:
    """An estimate as plain values, or why there is none."""
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
        found = estimate(request_of_run(rough_run(known), facts), facts)
        return result_of(fields["id"], found), ""
    except NoAnswerError as error:
        return None, str(error)
