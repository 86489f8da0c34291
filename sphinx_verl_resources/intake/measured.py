"""What a log measured, as fields of a run."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from . import log_metrics

if TYPE_CHECKING:
    from .log import LogText
    from .sources import UserInput

#: The field, the names of the figure in the log, and the digits behind the point that are kept.
_FIELDS = (
    ("host_ram_gib", (log_metrics.HOST,), 1),
    ("step_seconds", log_metrics.STEP_TIME, 1),
    ("mfu", (log_metrics.MFU,), 3),
    ("response_tokens", (log_metrics.RESPONSE,), 0),
)
_COUNTERS = (
    (log_metrics.PEAK_ALLOCATED, "torch-max-allocated"),
    (log_metrics.PEAK_RESERVED, "torch-max-reserved"),
)
#: The largest values that the schema takes.
_MOST = {"mfu": 1.0, "gib": 100_000.0, "host_ram_gib": 1e6, "step_seconds": 1e7, "response_tokens": 1e8}


def measured_of(log: LogText | None) -> dict[str, Any]:
    """The field ``measured``, under its name; empty without a figure."""
    if log is None:
        return {}
    found: dict[str, Any] = {}
    for name, counter in _COUNTERS:
        value = log.figures.figure(name)
        if value and round(value, 1) and value <= _MOST["gib"]:
            found = {"gib": round(value, 1), "counter": counter}
            break
    for field, names, digits in _FIELDS:
        value = log.figures.figure(*names)
        if value and round(value, digits) and value <= _MOST[field]:
            rounded = round(value, digits)
            found[field] = int(rounded) if digits == 0 else rounded
    return {"measured": found} if found else {}


def versions_of(log: LogText | None, said: UserInput) -> dict[str, Any]:
    """The field ``versions``, under its name; empty where none is known."""
    named = log.versions if log else {}
    versions = {
        "verl": said.verl_version or named.get("verl"),
        "torch": said.torch_version or named.get("torch"),
    }
    found = {package: version for package, version in versions.items() if version}
    return {"versions": found} if found else {}
