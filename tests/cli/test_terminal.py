"""Colour and progress are shown only at a terminal."""

from __future__ import annotations

import io
import os
import pty
import re
import signal
import subprocess
import sys

import pytest

from sphinx_verl_resources.__main__ import run
from sphinx_verl_resources.cli import command, main
from sphinx_verl_resources.diagnostics import Code, Diagnostic, Location, Severity

PROBLEMS = [
    Diagnostic(Location("a.yaml", 3, 6), Code.unknown_value, "tag: unknown value 'X'", "allowed: MIN"),
    Diagnostic(Location("b.txt"), Code.file_unexpected, "not read", severity=Severity.WARNING),
]


class Stream(io.StringIO):
    def __init__(self, *, tty: bool) -> None:
        super().__init__()
        self.tty = tty

    def isatty(self) -> bool:
        return self.tty


@pytest.fixture
def errors(monkeypatch):
    """Return a function that makes standard error a terminal or not."""
    for name in ("NO_COLOR", "FORCE_COLOR"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setattr(command, "_choice", "auto")

    def make(*, tty: bool) -> Stream:
        stream = Stream(tty=tty)
        monkeypatch.setattr(sys, "stderr", stream)
        return stream

    return make


def plain(text: str) -> str:
    return re.sub(r"\x1b\[[0-9;]*m", "", text)


@pytest.mark.parametrize(
    ("tty", "choice", "environment", "colored"),
    [
        (True, "auto", {}, True),
        (False, "auto", {}, False),
        (True, "never", {"FORCE_COLOR": "1"}, False),
        (False, "always", {"NO_COLOR": "1"}, True),
        (True, "auto", {"NO_COLOR": "1"}, False),
        (True, "auto", {"NO_COLOR": ""}, True),
        (False, "auto", {"FORCE_COLOR": "1"}, True),
        (False, "auto", {"FORCE_COLOR": ""}, False),
        (True, "auto", {"NO_COLOR": "1", "FORCE_COLOR": "1"}, False),
        (True, "auto", {"TERM": "dumb"}, False),
    ],
)
def test_who_gets_colour(errors, monkeypatch, tty, choice, environment, colored):
    stream = errors(tty=tty)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    command.choose_color(choice)
    command.report(PROBLEMS)
    assert ("\x1b" in stream.getvalue()) is colored
    assert plain(stream.getvalue()).splitlines() == [str(problem) for problem in PROBLEMS]


def test_levels_have_their_colours_and_codes_stand_back(errors):
    stream = errors(tty=True)
    command.report(PROBLEMS)
    first, second = stream.getvalue().splitlines()
    assert "a.yaml:3:6: \x1b[31mERROR\x1b[0m: tag" in first
    assert first.endswith("\x1b[2m[verl.unknown_value]\x1b[0m")
    assert "\x1b[33mWARNING\x1b[0m" in second


def test_nobody_there(monkeypatch):
    closed = io.StringIO()
    closed.close()
    assert command.wants_color(closed, "auto", {}) is False
    assert command.wants_color(None, "auto", {}) is False
    monkeypatch.setattr(sys, "stderr", None)
    assert list(command.progress([1, 2], "things")) == [1, 2]


def test_the_command_takes_color(data, monkeypatch, capsys):
    data.run("a", tag="X")
    monkeypatch.chdir(data.path.parent)
    assert main(["check", "--color", "always"]) == 1
    assert "\x1b[31mERROR" in capsys.readouterr().err
    assert main(["check"]) == 1
    assert "\x1b" not in capsys.readouterr().err


@pytest.mark.parametrize("more", [[], ["--color", "never"]])
def test_at_a_real_terminal(data, more):
    """Standard error is a terminal; standard output is not."""
    data.run("a", tag="X")
    environment = {
        name: value for name, value in os.environ.items() if name not in {"NO_COLOR", "FORCE_COLOR"}
    }
    reader, writer = pty.openpty()
    command = [sys.executable, "-m", "sphinx_verl_resources", "check", *more]
    result = subprocess.run(
        command, stdout=subprocess.PIPE, stderr=writer, text=True, cwd=data.path.parent,
        env={**environment, "TERM": "xterm"},
    )  # fmt: skip
    seen = os.read(reader, 10_000).decode()
    os.close(writer)
    os.close(reader)
    assert ("\x1b[31mERROR\x1b[0m" in seen) is not more
    assert "ERROR" in seen
    assert "\x1b" not in result.stdout


def ticking(step):
    """Return a clock that advances by a number of seconds at each reading."""
    now = [0.0]

    def clock():
        now[0] += step
        return now[0]

    return clock


def test_progress_is_one_line_that_goes_away(errors):
    stream = errors(tty=True)
    assert list(command.progress("abc", "cases", clock=ticking(0.6))) == ["a", "b", "c"]
    assert stream.getvalue() == "\r\x1b[Kcases: 1 of 3\r\x1b[Kcases: 2 of 3\r\x1b[K"


def test_quick_work_shows_nothing(errors):
    stream = errors(tty=True)
    assert list(command.progress("abc", "cases", clock=ticking(0.1))) == ["a", "b", "c"]
    assert stream.getvalue() == ""


def test_nothing_of_it_in_a_pipe(errors):
    stream = errors(tty=False)
    assert list(command.progress("abc", "cases", clock=ticking(5))) == ["a", "b", "c"]
    assert stream.getvalue() == ""


def test_signs_are_not_written_more_often_than_can_be_read(errors):
    stream = errors(tty=True)
    assert len(list(command.progress((n for n in range(2000)), "lines", clock=ticking(0.001)))) == 2000
    written = stream.getvalue().count("lines: ")
    assert 8 <= written <= 11  # during one of the two seconds


@pytest.mark.parametrize("stops", ["leaves", "fails"])
def test_the_line_goes_away_where_the_work_ends_early(errors, stops):
    stream = errors(tty=True)
    work = command.progress(range(9), "cases", clock=ticking(3))
    if stops == "leaves":
        for _item in work:
            break
        work.close()
    else:

        def failing():
            yield 1
            raise OSError

        with pytest.raises(OSError):  # noqa: PT011
            list(command.progress(failing(), "cases", 9, clock=ticking(3)))
        work.close()
    assert stream.getvalue().endswith("\r\x1b[K")


def test_the_line_fits(errors, monkeypatch):
    stream = errors(tty=True)
    monkeypatch.setenv("COLUMNS", "20")
    list(command.progress([1], "a\x1b[2Jb" * 30, clock=ticking(3)))
    shown = stream.getvalue().removeprefix("\r\x1b[K").removesuffix("\r\x1b[K")
    assert len(shown) == 19
    assert shown.isprintable()


@pytest.mark.parametrize("words", [["estimate", "cases.yaml"], ["table"], ["check"]])
def test_what_can_take_long_is_watched(words, errors, data, monkeypatch):
    data.run("a")
    (data.path.parent / "cases.yaml").write_text(
        "- {id: x, model: Qwen/Qwen2.5-7B, gpus: {count: 8, type: H100}, config: {}, outcome: fits}\n",
        "utf-8",
    )
    monkeypatch.chdir(data.path.parent)
    monkeypatch.setattr(sys, "stdout", io.StringIO())
    monkeypatch.setattr(command, "PATIENCE", 0)
    stream = errors(tty=True)
    main([*words, "--color", "never"])
    assert re.search(r"\r\x1b\[K(cases|run files): 0 of 1\r\x1b\[K", stream.getvalue())


def test_a_long_log_is_watched_and_can_be_left(errors, data, monkeypatch):
    log = data.path.parent / "run.log"
    log.write_bytes(b"step:1 - perf/max_memory_allocated_gb:71.3\n" + b"nothing\n" * (1 << 19))
    monkeypatch.chdir(data.path.parent)
    monkeypatch.setattr(command, "PATIENCE", 0)
    stream = errors(tty=True)
    main(["new", "--log", "run.log", "--id", "x", "--dry-run", "--color", "never"])
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
