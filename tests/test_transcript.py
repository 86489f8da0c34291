"""The page "Contributing a run": the recorded session shows the actual output of the commands."""

from __future__ import annotations

import re
import shutil

import pytest
from modules import module_at

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def transcript(root):
    """Return the tool that records the session."""
    return module_at(root / "tools/transcript.py")


@pytest.fixture
def recorded(transcript):
    return transcript.TARGET.read_text("utf-8")


def test_the_commands_print_what_is_recorded(transcript, recorded, root, tmp_path):
    clone = tmp_path / "clone"
    shutil.copytree(root / "data", clone / "data")
    transcript.prepare(clone)
    steps = [
        transcript.run(command, clone)
        for command in transcript.COMMANDS
        if command.startswith(("verl-resources", "sed"))
    ]
    assert len(steps) == 3
    known = transcript.without_times(recorded)
    for step in steps:
        assert transcript.without_times(f"$ {step.command}\n{step.output}\n") in known


def test_everything_was_typed_and_worked_within_two_minutes(transcript, recorded):
    assert re.findall(r"(?m)^\$ (\S+)", recorded) == [command.split()[0] for command in transcript.COMMANDS]
    times = [float(seconds) for seconds in re.findall(r"(?m)^\(([\d.]+) s\)$", recorded)]
    (total,) = re.findall(r"\((\d+) s of machine time", recorded)
    assert len(times) == len(transcript.COMMANDS)
    assert int(total) == pytest.approx(sum(times), abs=1)
    assert int(total) < 120
    assert f'id="run-{transcript.RUN}"' in recorded.splitlines()
    assert "0 errors, 0 warnings" in recorded
