"""The PDF: nothing printed over its neighbour, links that land, tables that break over pages."""

from __future__ import annotations

import re
import shutil
import subprocess

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sphinx_verl_resources.latex import widths

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
    # RECOMMENDED in capitals, 11 average characters at the very least of the 121 that a line can hold.
    assert shares[0] > 11 / 121
    assert r"long\_\allowbreak{}name\_\allowbreak{}" in tex
    assert tex.count(r"\begingroup\footnotesize") == tex.count(r"\endgroup") == 1


def test_other_tables_are_left_alone(own, data):
    data.run("a")
    page = ".. list-table::\n\n   * - some_long_name_of_a_thing\n     - b\n"
    assert r"\allowbreak" not in own.page(page).build("latex").text("projectnamenotset.tex")


@pytest.mark.skipif(not shutil.which("latexmk"), reason="latexmk is not installed")
@pytest.mark.skipif(not shutil.which("pdftotext"), reason="pdftotext is not installed")
@pytest.mark.matrix
def test_pdf(own, data):
    for index in range(60):
        data.run(f"a{index}", tag="RECOMMENDED", gpus={"count": 1000 + index, "type": "H800"},
                 script={"ref": "abc", "path": "x/" + "long_name_" * 5 + ".sh"},
                 notes=[{"code": "n", "text": "A remark."}])  # fmt: skip
    out = own.page(".. verl-runs::").build("latex").out
    command = ["latexmk", "-pdf", "-interaction=nonstopmode", "-halt-on-error", "projectnamenotset.tex"]
    subprocess.run(command, cwd=out, check=True, capture_output=True)
    log = (out / "projectnamenotset.log").read_text("utf-8", errors="replace")
    assert "undefined" not in log
    assert not re.search(r"^Overfull \\hbox", log, re.MULTILINE)
    subprocess.run(["pdftotext", "-layout", "projectnamenotset.pdf"], cwd=out, check=True)
    text = (out / "projectnamenotset.txt").read_text("utf-8")
    assert "continues on next page" in text
    for index in range(60):
        assert f"{1000 + index}*H800" in text
    assert text.count("RECOMMENDED") == 60
