"""Figures of the memory analysis on pages, computed by hand, and their formulas."""

from __future__ import annotations

import math
import re
from pathlib import Path

import pytest
import yaml

from sphinx_verl_resources.analysis import value_text
from sphinx_verl_resources.diagnostics import NoAnswerError
from sphinx_verl_resources.registries import load_analysis
from sphinx_verl_resources.strict_yaml import read_yaml

PROJECTS = yaml.safe_load(Path(__file__).with_name("analysis.yaml").read_text("utf-8"))
#: Directives whose formulas are computed again.
DIRECTIVES = [
    (model, steps, options)
    for model, options in (("3B", {}), ("32B", {"gpus": 13, "batch-size": 7}), ("671B", {"gpus": 1024}), ("Qwen/Qwen3-8B", {"sequence-length": 999}))
    for steps in ("fsdp", "gradient-checkpointing fsdp", "dynamic-batching activation-offload fsdp gradient-checkpointing")
]  # fmt: skip


@pytest.fixture(scope="module", params=PROJECTS, ids=lambda entry: entry["project"])
def case_and_build(request, new_project):
    """Return an entry of the table and the build of a page with everything in it."""
    entry, project = request.param, new_project("docs")
    for name, text in entry.get("files", {}).items():
        file = project.path.parent / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, "utf-8")
    roles = [("memory", text) for text in (*entry["values"], *entry["errors"])]
    roles += [("data", text) for text in entry.get("data", ())]
    page = "".join(f"#. :verl:{role}:`{text}`\n" for role, text in roles)
    project.page(f"{page}\n.. verl-requirements::\n\n.. verl-memory:: 3B\n")
    directories = entry.get("directories", ["../data"] if "files" in entry else [])
    return entry, project.build(verl_resources_data=directories)


def rows(table):
    """Return the texts of the cells of a table, without the marks of remarks."""
    return [
        [re.sub(r"\s*\[\d+\]", "", " ".join(cell.get_text().split())) for cell in row.select("td")]
        for row in table.select("tbody tr")
    ]


def shortened(output, wanted):
    """Return the rows, each cell with as many letters as the wanted one."""
    return [
        [cell[: len(want)] for cell, want in zip(row, cells, strict=False)]
        for row, cells in zip(output, wanted, strict=True)
    ]


def test_values(case_and_build):
    entry, build = case_and_build
    figures = [
        item.get_text().strip() for item in build.soup().select("ol.arabic li") if item.select(".verl-value")
    ]
    named = {**entry["values"], **entry.get("data", {})}
    assert dict(zip(named, figures, strict=True)) == named


def test_problems(case_and_build):
    entry, build = case_and_build
    assert len(build.soup().select("ol .verl-problem")) == len(entry["errors"])
    first = 4 + len(entry["values"])
    wanted = [f"index.rst:{first + at}: ERROR … {words}" for at, words in enumerate(entry["errors"].values())]
    wanted += entry.get("problems", [])
    forms = [".*".join(map(re.escape, words.split(" … "))) for words in wanted]
    assert [form for form in forms if not any(re.search(form, line) for line in build.warnings)] == [], (
        build.warnings
    )
    assert len(build.warnings) == len(wanted), build.warnings


def test_tables(case_and_build):
    entry, build = case_and_build
    tables = {
        table.caption.get_text().partition(":")[0]: table
        for table in build.soup().select("table.verl-requirements")
    }
    for size, wanted in entry["requirements"].items():
        output = [[row[0], row[2].partition(";")[0], *row[3:]] for row in rows(tables[size])]
        assert shortened(output, wanted) == wanted
    output, wanted = rows(build.soup().select("table.verl-memory")[-1]), entry["waterfall"]
    assert shortened(output[-len(wanted) :], wanted) == wanted


def test_numbers_in_formulas_give_their_results(project):
    """Each formula ends with its numbers and the result, as in `= 3,000,000,000 × 4 ÷ 8 = 1.5 GB`."""
    pages = []
    for model, steps, options in DIRECTIVES:
        lines = [f"   :{name}: {value}" for name, value in options.items()]
        page = "\n".join([f".. verl-memory:: {model}", "   :show: formulas", f"   :steps: {steps}", *lines])
        pages.append(page)
    build = project.page("\n\n".join(pages)).build("text")
    assert build.warnings == []
    text = " ".join(build.text("index.txt").split())
    formulas = re.findall(r"= ([\d.,]+(?: [×÷+] [\d.,]+)*) = ([\d.,]+) GB", text)
    assert len(formulas) > 100
    for numbers, result in formulas:
        value = eval(numbers.replace(",", "").replace("×", "*").replace("÷", "/"))
        figure = float(result.replace(",", ""))
        assert math.isclose(value if "+" in numbers else value / 1e9, figure, abs_tol=0.06), numbers


def test_every_printed_minimum_would_hold_the_total(project):
    """The smallest power of two whose GPUs together hold the total, as the page on the original figures says."""
    models = ("3B", "8B", "32B")
    roles = "".join(f"#. :verl:memory:`{model}, total`\n" for model in models)
    build = project.page(f"{roles}\n.. verl-requirements::\n").build()
    totals = [float(value.get_text().split()[0]) for value in build.soup().select(".verl-value")]
    tables = build.soup().select("table.verl-requirements")
    for total, table in zip(totals, tables, strict=True):
        minimum = [row for row in rows(table) if row[0] == "minimum"]
        assert minimum
        for _level, claim, _gpu, limit, *_rest in minimum:
            count = int(claim.partition("×")[0])
            assert count * float(limit) >= total > count / 2 * float(limit)


def test_a_file_without_valid_assumptions_ends_in_a_message():
    analysis, _problems = load_analysis([read_yaml(b"assumptions: {gpus: many}")])
    with pytest.raises(NoAnswerError, match=r"analysis\.yaml has errors"):
        value_text(analysis, "3B, total")
