"""The page "Contributing a run": the recorded session shows the actual output of the commands."""

from __future__ import annotations

import re
import shutil

import pytest
from modules import module_at


@pytest.mark.slow
def test_the_session_was_typed_and_worked_within_two_minutes(root, tmp_path):
    tool = module_at(root / "tools/transcript.py")
    recorded = tool.TARGET.read_text("utf-8")
    assert re.findall(r"(?m)^\$ (\S+)", recorded) == [command.split()[0] for command in tool.COMMANDS]
    times = [float(seconds) for seconds in re.findall(r"(?m)^\(([\d.]+) s\)$", recorded)]
    (total,) = re.findall(r"\((\d+) s of machine time", recorded)
    assert len(times) == len(tool.COMMANDS)
    assert int(total) == pytest.approx(sum(times), abs=1)
    assert int(total) < 120
    assert f'id="run-{tool.RUN}"' in recorded.splitlines()
    assert "0 errors, 0 warnings" in recorded
    shutil.copytree(root / "data", tmp_path / "clone/data")
    tool.prepare(tmp_path / "clone")
    for command in tool.COMMANDS[:3]:
        step = tool.run(command, tmp_path / "clone")
        assert tool.without_times(f"$ {command}\n{step.output}\n") in tool.without_times(recorded)
