"""Every kind of problem, provoked once: path, line, column, message and code; silenced one by one.

``codes.yaml`` has the mistakes. The page "Messages" shows these messages from ``docs/examples/messages.txt``;
to write that file anew, run this one with ``UPDATE_GOLDEN=1`` and ``-n 0``, and read the difference.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import yaml
from page_cases import write_data
from run_texts import run_text
from sphinx.util.logging import WarningSuppressor, is_suppressed_warning

from sphinx_verl_resources.commands import main
from sphinx_verl_resources.diagnostics import CODES

if TYPE_CHECKING:
    import logging

TABLE = yaml.safe_load(Path(__file__).with_name("codes.yaml").read_text("utf-8"))
CASES = {code: case for code, *case in TABLE["builds"]}


def path_of(file: str) -> str:
    """Return the path of a case's file from the folder of all data and pages."""
    return file if "/" in file else f"data/runs/{file}"


@pytest.fixture(scope="module")
def project(new_project):
    """A project with every mistake in it."""
    project = new_project("codes/docs")
    base = project.path.parent
    write_data(base, {"data/runs/good.yaml": run_text(id="good")})
    for file, content, *_ in CASES.values():
        if isinstance(content, dict):
            values = {key: ... if value is None else value for key, value in content.items()}
            content = run_text(**{"id": Path(file).stem, **values})
        if file.endswith(".rst"):
            project.page(content, Path(file).name)
        elif content:
            write_data(base, {path_of(file): content})
    (base / "data/runs/latin.yaml").write_bytes(CASES["encoding"][1].encode("latin-1"))
    (base / "data/runs/large.yaml").write_bytes(b"#" * (2**20 + 1))
    project.page(".. verl-runs::\n\n.. verl-memory:: 3B\n")
    directories = ["../data", "../more", "../last", "../nowhere"]
    project.conf.update(verl_resources_data=directories, verl_resources_script_url="https://example.org")
    return project


@pytest.fixture(scope="module")
def build_log(project) -> tuple[list[str], list[logging.LogRecord]]:
    """The output of the build, and its log before filtering."""
    records: list[logging.LogRecord] = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(WarningSuppressor, "filter", lambda _, record: records.append(record) or True)
        return project.build().warnings, records


@pytest.fixture
def compare_with_page(root):
    """A function that compares a message with the example for its code on the page "Messages"."""
    path = root / "docs/examples/messages.txt"

    def compare(message: str) -> None:
        code = message.rpartition(" ")[2]
        lines = path.read_text("utf-8").splitlines()
        if os.environ.get("UPDATE_GOLDEN"):
            others = [line for line in lines if not line.endswith(f" {code}")]
            lines = sorted([*others, message], key=lambda line: line.rpartition(" ")[2])
            path.write_text("".join(f"{line}\n" for line in lines), "utf-8")
        assert message in lines

    return compare


@pytest.mark.parametrize("code", CASES)
def test_place_words_and_code(project, build_log, compare_with_page, code):
    file, _, place, message = CASES[code]
    name = f"../{path_of(file)}"
    if file == "docs/conf.py":
        lines = (project.path / "conf.py").read_text("utf-8").splitlines()
        name, place = "conf.py", f"{[line.partition(' ')[0] for line in lines].index(place) + 1}:1"
    start = rf"{re.escape(f'{name}:{place}: ')}(ERROR|WARNING): {re.escape(message)}"
    lines = [line.replace(f"{project.path}/", "../docs/") for line in build_log[0]]
    (result,) = [line for line in lines if re.match(start, line)]
    assert result.endswith(f" [verl.{code}]")
    compare_with_page(result)


def test_every_code_has_its_case(root):
    # tests/core has these
    rules = {path.stem.partition("-")[0] for path in (root / "tests/core/rules").iterdir()} - {"good"}
    assert {*CASES, *TABLE["commands"], *rules} == {*CODES}


def test_each_is_silenced_by_its_code_and_nothing_else_is(project, build_log):
    codes = [(record.type, record.subtype) for record in build_log[1]]
    assert {kind for kind, _ in codes} == {"verl"}
    for code in CASES:
        silenced = {each for each in codes if is_suppressed_warning(*each, [f"verl.{code}"])}
        assert silenced == {("verl", code)}
    assert project.build(suppress_warnings=[f"verl.{code}" for code in CODES], fresh=True).warnings == []


@pytest.mark.parametrize("name", TABLE["commands"])
def test_command_line(tmp_path, monkeypatch, capsys, compare_with_page, name):
    command, files, message = TABLE["commands"][name]

    def written_out(text: str) -> str:
        return re.sub("[A-Z]{3,}", lambda match: TABLE["words"].get(match[0], match[0]), text)

    for file, content in files.items():
        (tmp_path / file).write_text(written_out(content), "utf-8")
    monkeypatch.chdir(tmp_path)
    main(written_out(command).split())
    result = capsys.readouterr().err.splitlines()
    matching = [line for line in result if line.startswith(message) and line.endswith(f" [verl.{name}]")]
    assert matching, result
    compare_with_page(matching[0])
