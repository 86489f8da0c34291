"""Our ids are unique on a page, and titles of the page do not take them."""

from __future__ import annotations

from collections import Counter

import pytest

DETAILS = ".. verl-runs:: 7B\n   :details:\n"


@pytest.fixture
def runs(own, data):
    """A project with runs whose ids look like ids of other things."""
    for name in ("a", "a-details", "a-2", "1", "size-7b", "run-a", "7b"):
        notes = [{"code": f"n-{number}", "text": f"Remark {number} on {name}."} for number in (1, 2)]
        data.run(name, notes=notes, settings={"data.train_batch_size": 64})
    return own


@pytest.mark.parametrize("before", [True, False])
def test_every_id_is_there_once(runs, before):
    """Two tables of the same runs, and titles like the ids of rows, sections and charts."""
    titles = [f"{title}\n{'-' * len(title)}\n\nText.\n" for title in ("Run a", "Size 7B", "Verl runs all")]
    tables = [
        DETAILS,
        ".. verl-runs:: 7B\n   :caption: All\n",
        ".. verl-gpus:: H100\n\n.. verl-gpus:: H100\n",
    ]
    soup = runs.page("\n".join(titles + tables if before else tables + titles)).build().soup()
    ids = Counter(element["id"] for element in soup.select("[id]"))
    assert [id_ for id_, times in ids.items() if times > 1] == []
    for link in soup.select("a.verl-mark, td a.internal[href^='#']"):
        assert soup.find(id=link["href"][1:]), link


def test_ids_keep_their_form_where_nothing_else_has_them(runs):
    ids = {element["id"] for element in runs.page(DETAILS).build().soup().select("[id]")}
    assert {"run-a", "run-a-details", "run-size-7b", "size-7b", "note-a-1", "note-a-2"} <= ids
