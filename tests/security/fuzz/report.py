"""A report of the fuzzer at the end of the tests."""

from __future__ import annotations

from security.fuzz.settings import SEED


def pytest_report_header() -> str:
    """The seed."""
    return f"fuzzer: seed {SEED}; another one with VERL_FUZZ_SEED"


def pytest_terminal_summary(terminalreporter) -> None:
    """By kind: the number of inputs, the longest step in seconds of processor time, and the most memory."""
    found: dict[str, tuple[int, float, int, float]] = {}
    for report in terminalreporter.stats.get("", ()):  # of the ends of tests
        for name, value in report.user_properties:
            if name == "fuzz":
                kind, count, seconds, number, peak = value
                old = found.get(kind, (0, 0.0, 0, 0.0))
                found[kind] = (old[0] + count, *max(old[1:3], (seconds, number)), max(old[3], peak))
    if found:
        terminalreporter.section(f"fuzzer, seed {SEED}")
    for kind, (count, seconds, number, peak) in found.items():
        terminalreporter.write_line(
            f"{kind}: {count} inputs; longest step {seconds:.2f} s (from {number}); peak {peak:.0f} MiB"
        )
