"""``.. verl-accuracy::`` in real builds."""

from __future__ import annotations

import json
import re

import pytest

from sphinx_verl_resources.catalog.cases import load_cases
from sphinx_verl_resources.catalog.files import bundled_directory, take_snapshot
from sphinx_verl_resources.cli.data import read_data
from sphinx_verl_resources.diagnostics import Location
from sphinx_verl_resources.estimator.accuracy import summaries
from sphinx_verl_resources.estimator.backtest import GROUPS, score, verdict_counts
from sphinx_verl_resources.units import share
from sphinx_verl_resources.views.verdicts import label

CASE = {
    "id": "one", "source": {"repo": "o/r", "issue": 7}, "model": "Qwen/Qwen2.5-7B-Instruct",
    "gpus": {"count": 8, "type": "H100"}, "outcome": "measured", "measured": {"gib": 50.0, "counter": "nvidia-smi"},
    "config": {"actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu": 4},
}  # fmt: skip


@pytest.fixture
def cases(own, data):
    """Additional cases to those of the package."""
    found = [
        CASE,
        {**CASE, "id": "two", "contested": "Somebody else saw 20 GiB."},
        {**CASE, "id": "three", "outcome": "oom", "measured": None, "source": "https://example.org/talk"},
        {**CASE, "id": "four", "model": "nobody/knows", "not_scored": "Too little is known."},
    ]
    found = [{key: value for key, value in case.items() if value is not None} for case in found]
    data.write("cases/own.yaml", json.dumps(found))
    return own


def test_cases_stand_beside_what_was_observed(cases, table_rows):
    build = cases.page(".. verl-accuracy::\n   :show: cases\n   :group: other\n").build()
    assert build.warnings == []
    block = build.soup().select_one("details.verl-details")
    assert block.summary.get_text(strip=True) == f"{len(block.select('tbody tr'))} cases"
    headings, *rows = table_rows(build.soup(), "verl-accuracy")
    assert headings == [
        "Case and source", "Model", "GPUs", "Compared", "Computed (GiB)", "Range (GiB)", "Observed (GiB)", "Error",
        "Inside, or verdict",
    ]  # fmt: skip
    found = {row[0].partition(",")[0]: row for row in rows}
    one, two, three, four = (found[name] for name in ("one", "two", "three", "four"))
    assert (one[2], one[3], one[6]) == ("8*H100", "peak of the GPU", "50.0")
    error = float(one[7].removesuffix(" %").replace("\N{MINUS SIGN}", "-"))
    assert error == pytest.approx(
        (float(one[4]) / 50 - 1) * 100, abs=0.2
    )  # rounding of a figure with one decimal
    assert one[8] in {"yes", "no"}
    assert two[8].startswith("contested [")
    assert two[7] == f"({one[7]})"
    assert (three[0], three[3], three[6]) == ("three", "outcome", "out of memory")
    assert re.fullmatch(
        r"(fits|borderline|depends on the lengths|does not fit): (agrees|contradicts)", three[8]
    )
    assert four[4] == four[7] == ""
    assert four[8].startswith("not scored [")
    soup = build.soup()
    link = next(a for a in soup.select("table.verl-accuracy a") if a.get_text() == "one")
    assert link["href"] == "https://github.com/o/r/issues/7"
    mark = next(row for row in soup.select("tbody tr") if "two" in row.td.get_text()).select_one(
        "a.verl-mark"
    )
    assert "Somebody else saw 20 GiB." in soup.find(id=mark["href"][1:]).find_parent("li").get_text()


def test_a_contested_case_is_not_counted(cases, data, table_rows):
    def counted() -> int:
        rows = table_rows(
            cases.page(".. verl-accuracy::\n   :group: other\n").build().soup(), "verl-accuracy"
        )
        assert len(rows) == 2
        return int(rows[1][1])

    before = counted()
    data.write("cases/own.yaml", json.dumps([CASE]))
    assert counted() == before
    data.write("cases/own.yaml", json.dumps([{**CASE, "not_scored": "x"}]))
    assert counted() == before - 1


def test_the_summary_is_that_of_the_backtest(project, table_rows):
    snapshot = take_snapshot(bundled_directory(), [], Location("x"))
    facts = read_data([]).registries
    scores = [score(entry.case, facts) for entry in load_cases(snapshot.cases).by_id.values()]
    found = summaries(scores)
    build = project.page(".. verl-accuracy::\n").build()
    assert build.warnings == []
    headings, *rows = table_rows(build.soup(), "verl-accuracy")
    assert headings[1:7] == [
        "Cases (n)", "Mean error", "Mean error, fitted to other sources", "Median error", "Worst error", "Inside the range",
    ]  # fmt: skip
    shares = ("mean_error", "out_of_fold", "median_error", "worst_error", "inside")
    assert [row[:7] for row in rows] == [
        [
            GROUPS[item.name].replace("'", "’"),
            str(item.cases),
            *(share(getattr(item, name)) for name in shares),
        ]
        for item in found
    ]
    _, verdicts = build.soup().select("table.verl-accuracy")
    assert [row.get_text(" ", strip=True) for row in verdicts.select("tbody tr")] == [
        f"{label(verdict)} {item.ran} {item.oom}" for verdict, item in verdict_counts(scores).items()
    ]


def test_a_broken_case_is_said_on_the_page(cases, data, table_rows):
    text = json.dumps([CASE, {**CASE, "id": "bad", "gpus": {"count": "many"}}])
    data.write("cases/own.yaml", text)
    build = cases.page(".. verl-accuracy::\n   :show: cases\n").build()
    assert any("../data/cases/own.yaml" in line and "ERROR" in line for line in build.warnings)
    assert "../data/cases/own.yaml has errors" in build.soup().select_one(".verl-problem").get_text()
    assert "one" in [row[0] for row in table_rows(build.soup(), "verl-accuracy")]
