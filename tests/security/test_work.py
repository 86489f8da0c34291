"""Data are never executed, and reading any file ends."""

from __future__ import annotations

import ast
import subprocess
import sys

import pytest

#: Functions that run code or create objects from input.
BANNED = {
    "eval", "exec", "compile", "__import__", "system", "popen", "Popen", "run_path", "import_module", "loads", "unsafe_load", "full_load",
    "load_all", "safe_load", "spawn", "fork", "check_output", "check_call", "subprocess", "pickle", "marshal", "shelve",
}  # fmt: skip
#: JSON and regular expressions; git, the only program; and modules of the package, by names in the source.
ALLOWED = {
    ("", "re.compile"),
    ("", "json.loads"),
    ("check.py", "subprocess"),
    ("extension.py", "import_module"),
    ("commands.py", "import_module"),
}


def test_nothing_in_the_package_can_run_what_it_reads(root):
    calls = set()
    for path in sorted((root / "sphinx_verl_resources").rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            names = [ast.unparse(node.func)] if isinstance(node, ast.Call) else []
            if isinstance(node, (ast.Import, ast.ImportFrom)):
                names = [alias.name for alias in node.names if alias.name != "import_module"] + [
                    getattr(node, "module", None) or ""
                ]
            banned = {name for name in names if name.rpartition(".")[2] in BANNED}
            calls |= {(path.name, name) for name in banned if not {("", name), (path.name, name)} & ALLOWED}
    assert calls == set()


PREFIX = "python3 -m verl.trainer.main_ppo "
#: The beginning of a file, and the text that is repeated up to the largest size of such a file.
SHAPES = [
    ("runs/a.yaml", "", "{"), ("runs/a.yaml", "", "? "), ("runs/a.yaml", "", "key%d: 1\n"), ("runs/a.yaml", "", '- "\\u202e"\n'),
    ("runs/a.yaml", "label: ", "a@a."), ("runs/a.yaml", "label: a", " " * 99 + "b"),
    ("analysis.yaml", "remarks:\n- name: a\n  text: T\n  sources: [{path: x}]\n  about:\n", "  - a%d\n"), ("analysis.yaml", "steps:\n", "- {name: a%d}\n"),
    ("cases/a.yaml", "", "- {id: a%d}\n"), ("cases/a.yaml", "", "- "), ("gpus.yaml", "gpus:\n- name: a\n  aliases:\n", "  - a%d\n"),
    ("run.sh", "", "("), ("run.sh", "", "${"), ("run.sh", "", "$(("), ("run.sh", "", "`"), ("run.sh", "", "A=$A$A\n"), ("run.sh", "", "if "),
    ("run.sh", "", "x && "), ("run.sh", "", "cat <<E\n"), ("run.sh", PREFIX, "a={1,2}"), ("run.sh", PREFIX, "x=$((9**9**9)) "), ("run.sh", f"{PREFIX}a.b=", "{"),
]  # fmt: skip
READ = """
import resource, sys
from pathlib import Path
resource.setrlimit(resource.RLIMIT_CPU, (60, 60))
from sphinx_verl_resources.commands import main
from sphinx_verl_resources.scripts.read import read_settings
if sys.argv[1] == "run.sh":
    read_settings(Path("run.sh").read_text(), "run.sh")
else:
    assert main(["check", "data"]) == 1
"""


@pytest.mark.slow
@pytest.mark.parametrize(("name", "before", "repeated"), SHAPES)
def test_as_much_as_is_read_at_all(data, name, before, repeated):
    """The limit of processor time is far above the usual time, and far below that of super-linear work."""
    most = 1 << 16 if name == "run.sh" else 1 << 20
    items = (repeated % index if "%d" in repeated else repeated for index in range(most // len(repeated)))
    data.write(f"../{name}" if name == "run.sh" else name, (before + "".join(items))[:most])
    command = [sys.executable, "-c", READ, name]
    result = subprocess.run(command, cwd=data.path.parent, capture_output=True, text=True)
    assert result.returncode == 0, result.stderr[-2000:]
    assert len(result.stderr) < 200_000
