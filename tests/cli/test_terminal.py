"""Progress is shown only at a terminal; messages are plain text everywhere."""

from __future__ import annotations

import io
import re
import signal
import sys

import pytest

from sphinx_verl_resources.__main__ import run
from sphinx_verl_resources.cli import command, main


class Stream(io.StringIO):
    def __init__(self, *, tty: bool) -> None:
        super().__init__()
        self.tty = tty

    def isatty(self) -> bool:
        return self.tty


@pytest.fixture
def errors(monkeypatch):
    """Return a function that makes standard error a terminal or not."""

    def make(*, tty: bool) -> Stream:
        stream = Stream(tty=tty)
        monkeypatch.setattr(sys, "stderr", stream)
        return stream

    return make


def ticking(step):
    """Return a clock that advances by a number of seconds at each reading."""
    now = [0.0]

    def clock():
        now[0] += step
        return now[0]

    return clock


def test_messages_are_plain_text(errors, data, monkeypatch):
    data.run("a", tag="X")
    monkeypatch.chdir(data.path.parent)
    stream = errors(tty=True)
    assert main(["check"]) == 1
    assert "a.yaml:3:6: ERROR: tag" in stream.getvalue()
    assert "\x1b" not in stream.getvalue()


@pytest.mark.parametrize(
    ("tty", "step", "shown"),
    [
        (True, 0.6, "\r\x1b[Kcases: 1 of 3\r\x1b[Kcases: 2 of 3\r\x1b[K"),
        (True, 0.1, ""),  # quick work
        (False, 5, ""),
    ],
)
def test_progress_is_one_line_that_goes_away(errors, tty, step, shown):
    stream = errors(tty=tty)
    assert list(command.progress("abc", "cases", clock=ticking(step))) == ["a", "b", "c"]
    assert stream.getvalue() == shown


def test_the_line_goes_away_where_the_work_ends_early(errors):
    stream = errors(tty=True)
    work = command.progress(range(9), "cases", clock=ticking(3))
    next(work)
    work.close()
    assert stream.getvalue().endswith("\r\x1b[K")


def test_the_line_fits(errors, monkeypatch):
    stream = errors(tty=True)
    monkeypatch.setenv("COLUMNS", "20")
    list(command.progress([1], "a\x1b[2Jb" * 30, clock=ticking(3)))
    shown = stream.getvalue().removeprefix("\r\x1b[K").removesuffix("\r\x1b[K")
    assert len(shown) == 19
    assert shown.isprintable()


def test_what_can_take_long_is_watched(errors, data, monkeypatch):
    data.run("a")
    (data.path.parent / "cases.yaml").write_text(
        "- {id: x, model: Qwen/Qwen2.5-7B, gpus: {count: 8, type: H100}, config: {}, outcome: fits}\n",
        "utf-8",
    )
    monkeypatch.chdir(data.path.parent)
    monkeypatch.setattr(sys, "stdout", io.StringIO())
    monkeypatch.setattr(command, "PATIENCE", 0)
    stream = errors(tty=True)
    main(["estimate", "cases.yaml"])
    assert re.search(r"\r\x1b\[Kcases: 0 of 1\r\x1b\[K", stream.getvalue())


def test_a_long_log_is_watched_and_can_be_left(errors, data, monkeypatch):
    log = data.path.parent / "run.log"
    log.write_bytes(b"step:1 - perf/max_memory_allocated_gb:71.3\n" + b"nothing\n" * (1 << 19))
    monkeypatch.chdir(data.path.parent)
    monkeypatch.setattr(command, "PATIENCE", 0)
    stream = errors(tty=True)
    main(["new", "--log", "run.log", "--id", "x", "--dry-run"])
    assert "\r\x1b[KMiB of the log: 0 of 5\r\x1b[K" in stream.getvalue()

    def leave(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr("sphinx_verl_resources.cli.new.read_log", leave)
    stream = errors(tty=True)
    monkeypatch.setattr(sys, "argv", ["verl-resources", "new", "--log", "run.log", "--id", "x"])
    handler = signal.getsignal(signal.SIGINT)
    try:
        assert run() == 2
    finally:
        signal.signal(signal.SIGINT, handler)  # a command ignores interrupts after it has ended
    assert stream.getvalue().endswith("\nverl-resources: interrupted\n")
    assert list((data.path / "runs").iterdir()) == []
