"""Text stays text in printed tables: Sphinx and Markdown show the fields of a run as typed."""

from __future__ import annotations

import re

import pytest
from bs4 import BeautifulSoup

from sphinx_verl_resources.commands import main
from sphinx_verl_resources.diagnostics import FORBIDDEN

#: Texts that are special to some parser.
HOSTILE = (
    "<script>alert(1)</script>", "</td><img src=x onerror=alert(1)>", ":raw-html:`<b>x</b>`", "|subst| `x <javascript:y>`_ *a* **b** ``c``",
    r"\input{secret} \write18{x} $x^2$ % # & ~ ^ _ { }", ".. include:: /etc/passwd", ".. raw:: html", "[x](javascript:alert(1)) ![y](z) ~~a~~",
    "=cmd|' /C calc'!A0", "+1+cmd", "@SUM(A1)", "-1+1", "- a", "1. a", "* a", "====", "a_ b__", r"\\", "_a_ __b__ ***c***",
    "{{ 7*7 }} {% raw %} ${HOME} `id`", "&lt;b&gt; &#60;", "'.sp 99 and \\fB roff", ".TH roff", "https://example.org www.example.org",
)  # fmt: skip
COLUMNS = "id,model,task,script,contributor,settings.data.x,settings.data.y"


@pytest.fixture
def table(data, capsys):
    """Return a function that prints a table of runs, each with a hostile text in every text field."""
    for index, text in enumerate(HOSTILE):
        settings = {"data.x": text, "data.y": [text]}
        script = {"ref": "main", "path": "a.sh", "text": text}
        data.run(
            f"r{index}",
            label=text,
            task=f"GRPO {text}",
            contributor={"name": text},
            script=script,
            settings=settings,
        )

    def printed(form):
        assert main(["table", str(data.path), "--format", form, "--columns", COLUMNS]) == 0
        return capsys.readouterr().out

    return printed


def assert_shown_as_typed(soup):
    rows = [[cell.get_text().strip() for cell in row.select("td")] for row in soup.select("tbody tr")]
    assert {row[0]: row[1:] for row in rows} == {
        f"r{index}": [text, f"GRPO {text}", *[text] * 4] for index, text in enumerate(HOSTILE)
    }
    assert not soup.select("script, img, b, em, strong, code, s")


def test_for_sphinx(project, table):
    build = project.page(table("list-table")).build(smartquotes=False)
    assert build.warnings == []
    assert_shown_as_typed(build.soup().select_one("div.body table"))


def test_for_github(table, needs):
    needs("myst_parser")
    from markdown_it import MarkdownIt

    text = table("github")
    markdown = MarkdownIt("commonmark", {"html": True}).enable(["table", "strikethrough"])
    soup = BeautifulSoup(markdown.render(text), "html.parser")
    assert_shown_as_typed(soup)
    assert not soup.select("a")
    assert "://" not in text.replace("<span>:</span>//", "")


#: Characters that control a terminal, are invisible, or change the direction of writing.
RAW = "\x1b[31m\x1b]0;x\x07\x9b2J\u202e\u2066\u200b\x08\r"
SCRIPT = f"""python3 -m verl.trainer.main_ppo actor_rollout_ref.model.path=Qwen/Qwen2.5-0.5B-Instruct \\
    algorithm.adv_estimator=grpo data.max_response_length=512 trainer.nnodes=1 trainer.n_gpus_per_node=8 \\
    actor_rollout_ref.actor.use_dynamic_bsz=True trainer.project_name="a{RAW}" data.train_files='b{RAW}'
"""
LOG = f"""(a{RAW} pid=1) Error executing job with overrides: ['actor_rollout_ref.model.path=c{RAW}']
torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. {RAW}
"""


@pytest.mark.parametrize(
    "line",
    [
        "estimate --script run.sh --gpus 8xH100 --verbose",
        "estimate --script run.sh --gpus 8xH100 --format json",
        f"estimate --script run.sh --gpus 8xH{RAW.strip()}",
        "diagnose run.log --script run.sh --gpus 8xH100 --verbose",
        f"diagnose d{RAW.strip()}.log",
        "new --script run.sh --log run.log --dry-run",
    ],
)
def test_nothing_controls_the_terminal(tmp_path, monkeypatch, capsys, line):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "run.sh").write_text(SCRIPT, "utf-8", newline="")
    (tmp_path / "run.log").write_text(LOG, "utf-8", newline="")
    main(line.split(" "))
    printed = "".join(capsys.readouterr())
    assert printed
    assert re.findall(rf"{FORBIDDEN.pattern}|\r", printed) == []
