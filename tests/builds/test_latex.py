"""LaTeX output: widths for every word, and break points in long names."""

from __future__ import annotations

import re

from hypothesis import given
from hypothesis import strategies as st

from sphinx_verl_resources.sphinx_ext.latex import widths

COLUMN = r"\\X\{(\d+)\}\{(\d+)\}"


@given(st.lists(st.tuples(st.floats(1, 100), st.floats(0, 100)), min_size=1, max_size=12), st.floats(1, 500))
def test_no_column_is_narrower_than_what_cannot_break(columns, room):
    pieces = [piece for piece, _ in columns]
    lines = [piece + more for piece, more in columns]
    found = widths(pieces, lines, room)
    assert all(width >= piece for width, piece in zip(found, pieces, strict=True))
    assert all(width <= line * 1.000001 for width, line in zip(found, lines, strict=True))
    assert sum(found) <= max(room, sum(pieces)) * 1.000001


def test_short_columns_keep_their_words_beside_a_long_one(own, data):
    data.run(
        "a",
        tag="RECOMMENDED",
        script={"ref": "abc", "path": "examples/tuning/7b/" + "long_name_" * 8 + "x.sh"},
    )
    tex = own.page(".. verl-runs:: 7B").build("latex").text("projectnamenotset.tex")
    shares = [int(width) / int(total) for width, total in re.findall(COLUMN, tex)]
    assert len(shares) == 9
    # RECOMMENDED in capitals needs at least 11 average characters of the 121 on a line.
    assert shares[0] > 11 / 121
    assert r"long\_\allowbreak{}name\_\allowbreak{}" in tex
    assert tex.count(r"\begingroup\footnotesize") == tex.count(r"\endgroup") == 1


def test_other_tables_are_left_alone(own, data):
    data.run("a")
    page = ".. list-table::\n\n   * - some_long_name_of_a_thing\n     - b\n"
    assert r"\allowbreak" not in own.page(page).build("latex").text("projectnamenotset.tex")
