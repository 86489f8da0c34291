"""A build runs no program, opens no connection and does not load the command line."""

from __future__ import annotations

import subprocess
import sys

import pytest

CODE = """
import sys
from sphinx.cmd.build import main

FORBIDDEN = ("subprocess.", "os.exec", "os.posix_spawn", "os.system", "socket.connect", "socket.getaddrinfo")

def refuse(event, args):
    if event.startswith(FORBIDDEN):
        raise AssertionError(f"{event}: {args}")

sys.addaudithook(refuse)
assert main(["-q", "-E", "-W", *sys.argv[1:]]) == 0
parts = tuple(f"sphinx_verl_resources.{name}" for name in ("check", "commands", "logs", "scripts.shell"))
loaded = {name for name in sys.modules if name.startswith(parts)}
assert loaded <= {"sphinx_verl_resources.logs", "sphinx_verl_resources.logs.run_file"}, loaded
"""


@pytest.mark.slow
def test_a_build_starts_no_program_opens_no_connection_and_imports_no_command(project, hardware_page):
    project.page(f"{hardware_page}\n.. verl-memory:: 7B\n")
    (project.path / "conf.py").write_text('extensions = ["sphinx_verl_resources"]\n', "utf-8")
    out = project.path / "again"
    subprocess.run([sys.executable, "-c", CODE, str(project.path), str(out)], check=True)
    assert "verl-what-if" in (out / "index.html").read_text("utf-8")
