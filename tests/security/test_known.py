"""Inputs that once broke a promise, each by what it broke."""

from __future__ import annotations

import json
import os
import re
import shlex
from importlib import import_module
from pathlib import Path

import pytest
from bs4 import BeautifulSoup

from sphinx_verl_resources.commands import main
from sphinx_verl_resources.diagnostics import FORBIDDEN

RUN = "id: {id}\nsize: 7B\ntag: MIN\nmodel: Qwen/Qwen2.5-7B-Instruct\ntask: {task}\ngpus: {{count: 2, type: H100}}\ntrain: fsdp\ninfer: {{engine: vllm}}\n"
TRAIN = "python3 -m verl.trainer.main_ppo actor_rollout_ref.model.path=Qwen/Qwen2.5-7B-Instruct "


def test_each_place_on_the_page_exists(root):
    places = re.findall(r"``((?!conf\.)[a-z_]+(?:\.\w+)+)``", (root / "docs/security.rst").read_text("utf-8"))
    assert len(places) >= 12
    for place in places:
        module, _, name = place.rpartition(".")
        assert hasattr(import_module(f"sphinx_verl_resources.{module}"), name), place


# -- names


@pytest.mark.parametrize(
    "sign", ["\u200c", "\u200d", "\ufe0f", "\u2800", "\ufdd0", "\u0301", "\u041d", "é", "\n", "\x1b"]
)
def test_no_name_has_a_twin(data, sign):
    gpu = {
        "name": f"H100{sign}",
        "vendor": "nvidia",
        "memory_gb": 999,
        "memory_mib": 999999,
        "kind": "nominal",
    }
    data.write("gpus.yaml", json.dumps({"gpus": [gpu]}))
    data.run("a", settings={f"data.x{sign}": 1})
    dataset = data.load()
    assert len(dataset.diagnostics_of("runs")) >= 2
    assert gpu["name"] not in {gpu.name for gpu in dataset.gpus}


# -- the output of a build


def occupied(path: Path, kind: str) -> None:
    """Put something into the place of an output file."""
    path.parent.mkdir(parents=True)
    if kind == "folder":
        path.mkdir()
    elif kind == "pipe":
        os.mkfifo(path)
    else:
        path.symlink_to({"link": "../../../../victim", "device": "/dev/full"}[kind])


@pytest.mark.parametrize("kind", ["link", "pipe", "device", "folder"])
def test_odd_files_in_the_output(own, data, kind):
    (data.path.parent / "victim").write_text("mine")
    data.run("a")
    target = own.path / "_build/html/verl-resources.json"
    occupied(target, kind)
    own.page(".. verl-downloads::\n")
    if kind == "folder":
        (problem,) = own.build().warnings
        assert re.search(
            r"verl-resources\.json cannot be written: Is a directory \[verl\.file_unexpected\]$", problem
        )
    else:
        assert json.loads(own.build().text("verl-resources.json"))["runs"]
        assert target.is_file()
        assert not target.is_symlink()
    assert (data.path.parent / "victim").read_text() == "mine"


def test_a_file_of_the_user_stays_if_no_page_has_our_directives(project):
    project.path.joinpath("extra").mkdir()
    project.path.joinpath("extra/verl-resources.json").write_text("mine")
    build = project.page("Text.\n").build(html_extra_path=["extra"])
    assert build.text("verl-resources.json") == "mine"


@pytest.mark.parametrize("damage", [lambda content: content[: len(content) // 2], lambda _: b"\xff\xfe"])
def test_kept_answers_that_are_damaged_are_computed_again(project, damage):
    page = ".. verl-fewest::\n   :sizes: 0.5B\n"
    build = project.page(page).build(language="zh_CN")
    file = max(Path(build.app.doctreedir).glob("verl-fewest-*"), key=lambda path: path.stat().st_size)
    content = file.read_bytes()
    file.write_bytes(damage(content))
    again = project.page(f"{page}\nMore.\n").build()
    assert (again.warnings, file.read_bytes()) == ([], content)


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("verl_resources_data", ["a\0b"], "conf.py:2:1: ERROR: the data directory 'a\\x00b' cannot be used"),
        (
            "verl_resources_data",
            ["\ud800"],
            "conf.py:2:1: ERROR: the data directory '\\ud800' cannot be used",
        ),
        (
            "verl_resources_script_url",
            "https://{ref}/{path}",
            "conf.py:2:1: ERROR: verl_resources_script_url must",
        ),
    ],
)
def test_odd_values_in_conf_py(project, name, value, message):
    build = project.page(".. verl-gpus::\n").build(**{name: value})
    assert message in "\n".join(build.warnings)
    assert build.soup().select_one("table.verl-gpus td")


# -- commands

#: Characters that control a terminal, are invisible, or change the direction of writing.
RAW = "\x1b[31m\x1b]0;x\x07\x9b2J\u202e\u2066\u200b\x08\r"
SCRIPT = f"{TRAIN}algorithm.adv_estimator=grpo data.max_response_length=512 trainer.nnodes=1 trainer.n_gpus_per_node=8 \\\n"
SCRIPT += f"    actor_rollout_ref.actor.use_dynamic_bsz=True trainer.project_name=\"a{RAW}\" data.train_files='b{RAW}\n::error::'\n"
LOG = f"""(a{RAW} pid=1) Error executing job with overrides: ['actor_rollout_ref.model.path=c{RAW}']
torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. {RAW}
"""


@pytest.mark.parametrize("line", ["estimate --script run.sh --gpus 8xH100 --verbose", "estimate --script run.sh --gpus 8xH100 --format json",
    f"estimate --script run.sh --gpus 8xH{RAW.strip()}", "diagnose run.log --script run.sh --gpus 8xH100 --verbose",
    f"diagnose d{RAW.strip()}.log", "new --script run.sh --log run.log --dry-run", "plan qwen3-8b --gpus 8xH100 data.x=a\n::error::z"])  # fmt: skip
def test_nothing_controls_the_terminal(tmp_path, monkeypatch, capsys, line):
    monkeypatch.chdir(tmp_path)
    Path("run.sh").write_text(SCRIPT, "utf-8", newline="")
    Path("run.log").write_text(LOG, "utf-8", newline="")
    main(line.split(" "))
    output = "".join(capsys.readouterr())
    assert output
    assert re.findall(rf"{FORBIDDEN.pattern}|\r|^::", output, re.MULTILINE) == []


SECRET = "hunter2-hunter2"
NEW = "qwen2-5-7b-ppo-8xh100"
#: Links out of a data directory, and the commands that may meet them.
LINKS = {
    f"runs/{NEW}.yaml": "new --script run.sh --gpus 8*H100 --output data --force", "gpus.yaml": "check data", "architectures.yaml": "check data",
    "analysis.yaml": "export data", "config_keys.yaml": "check data", "accuracy.yaml": "table data", "runs": "table data", "cases": "check data",
    "runs/a.yaml": "estimate data/runs/a.yaml", "cases/a.yaml": "estimate data/cases/a.yaml", "schema/run.json": "schema --output data/schema",
    "schema": "export data --output data/schema/x",
}  # fmt: skip


def test_a_replaced_file_keeps_its_mode(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("out.json").touch(0o600)
    assert main(["schema", "gpus", "--output", "."]) == main(["export", "--output", "out.json"]) == 0
    assert Path("out.json").stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize("link", LINKS)
def test_no_link_leads_out_of_a_data_directory(link, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    for folder in {"outside/runs", "data/runs", "data/cases", "data/schema"} - {f"data/{link}"}:
        Path(folder).mkdir(parents=True, exist_ok=True)
    for name in ("secret.yaml", "runs/a.yaml"):
        Path("outside", name).write_text(RUN.format(id=SECRET, task=SECRET) + f"{SECRET}: 1\n")
    Path("run.sh").write_text(TRAIN)
    Path("data", link).symlink_to(tmp_path / "outside" / ("runs" if "." not in link else "secret.yaml"))
    before = {path: path.stat().st_mtime_ns for path in Path("outside").rglob("*")}
    for line in ("check data", LINKS[link]):
        assert main(shlex.split(line)) in (0, 1, 2)
        assert SECRET not in "".join(capsys.readouterr()), line
    assert {path: path.stat().st_mtime_ns for path in Path("outside").rglob("*")} == before


def test_links_inside_a_data_directory_and_to_it_are_fine(data, tmp_path, monkeypatch, capsys):
    data.run("a").rename(data.path / "runs/.a.yaml")
    (data.path / "runs/a.yaml").symlink_to(".a.yaml")
    data.path.rename(tmp_path / "moved")
    data.path.symlink_to("moved")
    monkeypatch.chdir(tmp_path)
    assert main(["table", "--format", "csv", "--columns", "id"]) == 0
    assert capsys.readouterr() == ("Run\na\n", "")


def test_of_many_problems_five_hundred_are_listed_errors_first_and_no_line_is_endless(
    data, monkeypatch, capsys
):
    monkeypatch.chdir(data.path.parent)
    data.run(
        "a", settings={**{f"x{index}.y": 1 for index in range(600)}, "actor_rollout_ref.rollout.n": "five"}
    )
    data.run("b", label="x" * 100_000, **{"k" * 1000: 1})
    assert main(["check", "data"]) == 1
    lines = capsys.readouterr().err.splitlines()
    assert (len(lines), lines[-1].partition("WARNING: ")[2][:33]) == (
        501,
        "more problems are not listed; fix",
    )
    assert [line for line in lines if ": ERROR: actor_rollout_ref.rollout.n: " in line]
    assert max(map(len, lines)) < 1200


@pytest.mark.parametrize("path", ["a b.sh", "a%2f..%2fb.sh", "a?x=1#y.sh", "ü.sh", "a&b;c.sh", "a:b.sh"])
def test_what_a_path_may_hold_stays_in_the_path(data, path, capsys):
    data.run("a", script={"ref": "main", "path": path})
    assert main(["table", str(data.path), "--columns", "link", "--format", "list-table"]) == 0
    href = re.search(r"<(\S+)>`__", capsys.readouterr().out)[1].replace("\\", "")
    assert href.startswith("https://github.com/verl-project/verl/blob/main/")
    assert not re.search(r"[ ?#<>]|/\.\./", href)


# -- printed tables

#: Texts that are special to some parser.
HOSTILE = (
    "<script>alert(1)</script>", "</td><img src=x onerror=alert(1)>", ":raw-html:`<b>x</b>`", "|subst| `x <javascript:y>`_ *a* **b** ``c``",
    r"\input{secret} \write18{x} $x^2$ % # & ~ ^ _ { }", ".. include:: /etc/passwd", ".. raw:: html", "[x](javascript:alert(1)) ![y](z) ~~a~~",
    "- a", "1. a", "====", "a_ b__", r"\\", "_a_ __b__ ***c***", "{{ 7*7 }} {% raw %} ${HOME} `id`", "&lt;b&gt; &#60;", "https://example.org www.example.org",
)  # fmt: skip


@pytest.fixture
def table(data, capsys):
    """Return a function that prints a table of runs, each with a hostile text in every text field."""
    for index, text in enumerate(HOSTILE):
        fields = {
            "label": text,
            "task": f"GRPO {text}",
            "contributor": {"name": text},
            "settings": {"data.x": text, "data.y": [text]},
        }
        data.run(f"r{index}", script={"ref": "main", "path": "a.sh", "text": text}, **fields)

    def output(form):
        columns = "id,model,task,script,contributor,settings.data.x,settings.data.y"
        assert main(["table", str(data.path), "--format", form, "--columns", columns]) == 0
        return capsys.readouterr().out

    return output


def assert_shown_as_typed(soup):
    rows = [[cell.get_text().strip() for cell in row.select("td")] for row in soup.select("tbody tr")]
    expected = {f"r{index}": [text, f"GRPO {text}", *[text] * 4] for index, text in enumerate(HOSTILE)}
    assert {row[0]: row[1:] for row in rows} == expected
    assert not soup.select("script, img, b, em, strong, code, s")


def test_a_printed_table_in_sphinx(project, table):
    build = project.page(table("list-table")).build(smartquotes=False)
    assert build.warnings == []
    assert_shown_as_typed(build.soup().select_one("div.body table"))


def test_a_printed_table_on_github(table, needs):
    needs("myst_parser")
    from markdown_it import MarkdownIt

    text = table("github")
    markdown = MarkdownIt("commonmark", {"html": True}).enable(["table", "strikethrough"])
    soup = BeautifulSoup(markdown.render(text), "html.parser")
    assert_shown_as_typed(soup)
    assert not soup.select("a")
    assert "://" not in text.replace("<span>:</span>//", "")
