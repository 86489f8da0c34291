"""Pages with tables of runs, and the view and actions of a reader."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

LONG = "Model-" + "x" * 194
ARABIC, CHINESE = "نموذج", "模型"
#: Output of other directives on the page, which the script must handle.
BLOCKS = """
.. raw:: html

   <details class="verl-details verl-run-a" id="run-a-details"><summary>a</summary><pre>x=1</pre></details>
   <details class="verl-details verl-run-b" id="run-b-details"><summary>b</summary><pre>x=2</pre></details>
   <details class="verl-details verl-more verl-run-c" id="run-c-details"><summary>c</summary><pre>data.max_length=3</pre></details>
   <div class="verl-scroll" id="narrow" tabindex="0" role="region" aria-label="n"><p>Text.</p></div>
   <div class="verl-scroll" id="wide" tabindex="0" role="region" aria-label="w" style="overflow-x: auto">
   <div style="width: 4000px">Text.</div></div>
"""
#: The status before any choice.
TESTED = "5 of 6 runs: only those that ran"
SHOW_ALL = "Show all 6 runs"
#: Without the sidebars, because their search has an inline script.
CONF = {"html_theme": "basic", "html_sidebars": {"**": []}}
TWO_TABLES = """
.. verl-runs:: 7B
   :caption: Seven
   :columns: id gpus settings.data.x

.. verl-runs:: 3B 7B
   :caption: Both
   :columns: model id gpus
"""


def build_project(own, data) -> Path:
    """Build runs of several sizes, one without numbers, and with names that are long or in other scripts."""
    days = {name: f"2026-01-0{number}" for number, name in enumerate("abdef", 1)}
    a7 = {"gpus": {"count": 16, "type": "H100"}, "max_batch": 1200, "settings": {"data.x": "1,024"}}
    b7 = {"gpus": {"count": 2, "type": "H800"}, "task": "PPO", "max_batch": 64, "settings": {"data.x": "-3"}}
    a7["notes"] = [
        {"code": "n", "about": "train", "text": "Of a alone."},
        {"code": "n", "about": "train", "text": "Of both."},
    ]
    b7["notes"] = [
        {"code": "n", "about": "train", "text": "Of b alone."},
        {"code": "n", "about": "train", "text": "Of both."},
    ]
    d3 = {"gpus": {"count": 4, "type": "H20"}, "label": ARABIC, "train": "megatron"}
    e3 = {"label": LONG, "settings": {"data.x": "999.5"}}
    f3 = {"label": CHINESE, "task": CHINESE}
    a7["script"] = {"ref": "abc", "path": "examples/qwen2_7b_grpo.sh"}
    for name, fields in {"a": a7, "b": b7}.items():
        data.run(name, added=days[name], **fields)
    for name, fields in {"d": d3, "e": e3, "f": f3}.items():
        data.run(name, size="3B", added=days[name], **fields)
    data.run("c", gpus={"count": 8, "type": None}, kind="stated", tag=None, infer=None)
    pages = {
        "runs": f".. verl-runs::\n{BLOCKS}",
        "two": TWO_TABLES,
    }
    own.page(".. toctree::\n\n" + "".join(f"   {name}\n" for name in pages))
    for name, text in pages.items():
        own.page(text, f"{name}.rst")
    build = own.build(**CONF)
    assert build.warnings == []
    (build.out / "favicon.ico").write_bytes(b"")
    return build.out


def rows(page, table: int = 0) -> list[str]:
    """Return the ids of the runs that a table shows, in order."""
    found = page.locator("table.verl-runs").nth(table).locator("tbody tr:visible")
    return [re.search(r"verl-run-(\w+)", row.get_attribute("class"))[1] for row in found.all()]


def every_row(page) -> list[str]:
    """Return the ids of the runs in all tables."""
    return [run for table in range(page.locator("table.verl-runs").count()) for run in rows(page, table)]


def status(page) -> str:
    return " ".join(page.locator(".verl-status").inner_text().split())


def choose(page, label: str, option: str) -> None:
    """Choose an option by its text or its number."""
    page.get_by_label(label, exact=True).select_option(option)


def query(page) -> str:
    return page.evaluate("location.search")
