"""Random launch scripts and cases: no exception, and a place for each problem."""

from __future__ import annotations

from case_texts import GOOD, read
from hypothesis import given
from hypothesis import strategies as st

from sphinx_verl_resources.diagnostics import Location
from sphinx_verl_resources.scripts.overrides import read_overrides
from sphinx_verl_resources.scripts.read import read_settings

#: Words that are special in YAML, in a shell or in neither.
WORDS = (
    "null", "~", "- ", ": ", "? ", "{", "}", "[", "]", ", ", "!!python/none ", "&a ", "*a", "<<: ", "|", ">-", "---\n", "#", "%x",
    "if ", "then ", "fi\n", "for i in ", "do ", "done\n", "case $A in ", "esac\n", ";;", "$(", "$((", "))", ")", "${A:-", "${A[@]}",
    "A=", "A=$A$A\n", "L+=(1 2)\n", "f() { ", "[[ ", " ]]", "&&", "|", "<<E\nx\nE\n", "python3 -m verl.trainer.main_ppo ",
    "trainer.nnodes=", "+c.d=", "--config-name ", "eval ", "'", '"', "`", "\\", "\t", "\n", "\r", " ", "x", "8", "1e400", "9" * 400,
    "\u202e", "\u200b", "\x00", "\U000e0041", "<script>alert(1)</script>", "TODO",
)  # fmt: skip
texts = st.lists(st.sampled_from(WORDS), max_size=30).map("".join)


@given(texts)
def test_any_settings(text):
    for found in (read_settings(text, "x"), read_overrides(text.split("\n"), Location("x"))):
        assert found.places.keys() == found.values.keys() | found.unresolved.keys()
        for problem in found.problems:
            assert str(problem).startswith("x:")
            assert str(problem).isprintable()


@given(texts, st.integers(0, len(GOOD)), st.integers(0, 20))
def test_any_cases(text, start, length):
    for problem in read(GOOD[:start] + text + GOOD[start + length :] + GOOD).problems:
        assert str(problem).startswith("cases/a.yaml:")
        assert str(problem).isprintable()
