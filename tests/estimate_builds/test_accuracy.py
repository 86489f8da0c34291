"""``.. verl-accuracy::`` in real builds."""

from __future__ import annotations

import json
import re

import pytest
from page_cases import words

CASE = {
    "id": "one", "source": {"repo": "o/r", "issue": 7}, "model": "Qwen/Qwen2.5-7B-Instruct",
    "gpus": {"count": 8, "type": "H100"}, "outcome": "measured", "measured": {"gib": 50.0, "counter": "nvidia-smi"},
    "config": {"actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu": 4},
}  # fmt: skip


@pytest.fixture
def cases(own, data):
    """Additional cases to those of the package."""
    rows = [
        CASE,
        {**CASE, "id": "two", "contested": "Somebody else saw 20 GiB."},
        {**CASE, "id": "three", "outcome": "oom", "measured": None, "source": "https://example.org/talk"},
        {**CASE, "id": "four", "model": "nobody/knows", "not_scored": "Too little is known."},
    ]
    rows = [{key: value for key, value in case.items() if value is not None} for case in rows]
    data.write("cases/own.yaml", json.dumps(rows))
    return own


def test_cases_are_beside_what_was_observed(cases):
    build = cases.page(".. verl-accuracy::\n   :group: fsdp\n").build()
    assert build.warnings == []
    soup = build.soup()
    block = soup.select_one("details.verl-details")
    assert block.summary.get_text(strip=True) == f"{len(block.select('tbody tr'))} cases"
    headings, *rows = [[*map(words, row.select("th, td"))] for row in soup.select("table.verl-accuracy tr")]
    assert headings == [
        "Case and source", "Kind", "Model", "GPUs", "Computed (GiB)", "Range (GiB)", "Observed (GiB)", "Error", "Inside, or verdict",
    ]  # fmt: skip
    result = {row[0].partition(",")[0]: row for row in rows}
    one, two, three, four = (result[name] for name in ("one", "two", "three", "four"))
    assert (one[1], one[3], one[6]) == ("fsdp", "8*H100", "50.0")
    error = float(one[7].removesuffix(" %").replace("\N{MINUS SIGN}", "-"))
    assert error == pytest.approx((float(one[4]) / 50 - 1) * 100, abs=0.2)  # figures have one decimal
    assert one[8] in {"yes", "no"}
    assert (two[7], two[8]) == (one[7], "contested")
    assert (three[0], three[6]) == ("three", "out of memory")
    verdicts = "fits|borderline|depends on the lengths|does not fit"
    assert re.fullmatch(rf"({verdicts}): (agrees|contradicts)", three[8])
    assert (four[4], four[7], four[8]) == ("", "", "not scored")
    link = next(a for a in soup.select("table.verl-accuracy a") if a.get_text() == "one")
    assert link["href"] == "https://github.com/o/r/issues/7"
    notes = [words(note) for note in soup.select("ul.verl-notes li")]
    assert {"two: Somebody else saw 20 GiB.", "four: Too little is known."} <= {*notes}
