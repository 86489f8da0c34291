"""No text can crash what reads settings."""

from __future__ import annotations

from hypothesis import example, given
from hypothesis import strategies as st

from sphinx_verl_resources.diagnostics import Diagnostic, Location
from sphinx_verl_resources.settings.overrides import read_overrides
from sphinx_verl_resources.settings.read import read_script, read_settings
from sphinx_verl_resources.settings.result import read_yaml_settings

PIECES = st.sampled_from(
    [
        "if ", "then ", "else ", "elif ", "fi", "for i in ", "while ", "do ", "done", "case $A in ", "esac", "a) ", ";;", ";",
        "\n", " ", "\\\n", "\\", "'", '"', "`", "$(", "$((", "))", ")", "(", "{ ", "}", "${A", "${A:-", "${A:=", "${#A}", "${A[@]}",
        '"${L[@]}"', "$@", "$A", "$B", "A=", "L=(", "L+=(", "A+=", "A=$A$A", "f() ", "f ", "[[ ", "]]", "[ ", "]", "-z ", "=", "&&",
        "||", "|", "&", ">", "<<E\n", "E\n", "<(", "2>&1", "#", "~", "!", "1", "x", "*", "**", "+ ", "- ", "/ ", "? ", ": ", "<<",
        "python3 -m verl.trainer.main_ppo ", "a.b=", "+c.d=", "~e ", "[1,", "{a: ", "null", "--config-name ", "exit", "unset A",
        "read A", "export ", "local ", "\0", "\r", "\u00e9", "\ud800", "a: ", "- ", "---\n", "eval ", "bash -c ",
    ]
)  # fmt: skip


def check(text: str) -> None:
    """The result of any text can be used and printed."""
    for found in (read_settings(text, "x"), read_script(text, "x"), read_yaml_settings(text, "x")):
        assert not found.values.keys() & found.unresolved.keys()
        assert found.places.keys() == found.values.keys() | found.unresolved.keys()
        for value in found.values.values():
            items = value if isinstance(value, tuple) else (value,)
            assert all(item is None or isinstance(item, (bool, int, float, str)) for item in items)
        for problem in found.problems:
            assert isinstance(problem, Diagnostic)
            assert "\n" not in str(problem)
            assert problem.place.path == "x"
            assert problem.place.line >= 1
            assert problem.place.column >= 1


@given(st.text())
@example("'")
@example("$((")
def test_any_text(text):
    check(text)


@given(st.lists(PIECES, max_size=60).map("".join))
@example("a ` -m verl.trainer.main_ppo b.c=1 `")
@example("A=$A$A\n" * 30 + "python3 -m verl.trainer.main_ppo a.b=$A")
def test_any_script(text):
    check(text)


@given(st.recursive(st.sampled_from(["1", "x", "$A"]), lambda inner: st.builds("{}{}{}".format, st.sampled_from(["$((", "${A:-", "[", "{a: ", "(", '"$(']), inner, st.sampled_from(["))", "}", "]", ")", ')"', ""]))))  # fmt: skip
def test_any_nesting(text):
    check(f"python3 -m verl.trainer.main_ppo a.b={text}\nA={text}")
    check(f"a.b={text}")


@given(st.text())
def test_any_override(word):
    found = read_overrides([word, f"a.b={word}"], Location("here"))
    assert all(isinstance(problem, Diagnostic) for problem in found.problems)
