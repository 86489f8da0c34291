"""The reader of shell scripts agrees with bash; values that only a running shell knows are unknown."""

from __future__ import annotations

import subprocess

import pytest

from sphinx_verl_resources.diagnostics import Location
from sphinx_verl_resources.settings.shell import expansion
from sphinx_verl_resources.settings.shell.follow import follow
from sphinx_verl_resources.settings.shell.syntax import Source
from sphinx_verl_resources.settings.shell.variables import cause_of, known, written


def reason(text):
    return cause_of(text).text


def read_shell(script):
    followed = follow(Source(script), {})
    return followed.commands, followed.problems


#: Scripts that call ``show``, and the words of all calls.
WORDS = [
    ("show a b  c", ["a", "b", "c"]),
    ("show a#b # c", ["a#b"]),
    ("# show a\n\nshow b", ["b"]),
    ("show 'a b' \"c d\" e\\ f ''", ["a b", "c d", "e f", ""]),
    ('show "\\$A \\"b\\" \\c" \\$A', ['$A "b" \\c', "$A"]),
    ("show $'it is' $\"a b\"", ["it is", "a b"]),
    ("show a \\\n  b \\\n\\\n  c", ["a", "b", "c"]),
    ("show a \\\n  # a comment ends the command \\\n  b=c\nshow d", ["a", "d"]),
    ("show a 2>&1 >/dev/null b </dev/null c", ["a", "b", "c"]),
    ("show a &>/dev/null; show b 2>/dev/null | cat", ["a", "b"]),
    ("cat >/dev/null <<EOF\nshow a\n'\nEOF\nshow b", ["b"]),
    ("cat >/dev/null <<-'EOF'\n\tshow a $(\n\tEOF\nshow b", ["b"]),
    ("A=4; B=$A; show $A ${B} k=$A", ["4", "4", "k=4"]),
    ("A='a  b'; show $A \"$A\" k=$A", ["a", "b", "a  b", "k=a", "b"]),
    ("A=\"x y\"; B=$A; A=\"$A z=1\"; show $A \"$B\"", ["x", "y", "z=1", "x y"]),
    ("A=x; A+=y; export A+=z B=$A; show $A $B", ["xyz", "xy"]),
    ("A=2 true; show \"${A-unset}\"", ["unset"]),
    ("show ${X:-8} ${X-9} \"${X:-a b}\" ${X:-a b} ${X:-\"c d\"}", ["8", "9", "a b", "a", "b", "c d"]),
    ("X=7; show ${X:-8} ${X:+1} ${X:=3} ${X:?}", ["7", "1", "7", "7"]),
    (": ${X:=8}; : \"${Y=9}\"; show $X $Y", ["8", "9"]),
    ("show ${1:-x} \"$@\" $@ ${@:2} y", ["x", "y"]),
    ("A=3; show $((A * 2)) $(( $A + ${B:-1} )) $(((A + 1) * 2))", ["6", "4", "8"]),
    ("show $((7 / 2)) $((-7 / 2)) $((-7 % 3)) $((2 + 3 * 4)) $((2 - - 3))", ["3", "-3", "-1", "14", "5"]),
    ("L=(a 'b c' # d\n  e=f); show \"${L[@]}\" ${#L[@]}", ["a", "b c", "e=f", "3"]),
    ("L=(a 'b c'); show ${L[@]} \"${L[*]}\" ${L[1]} $L x${L[@]}y", ["a", "b", "c", "a b c", "b", "c", "a", "xa", "b", "cy"]),
    ("L=(); show \"${L[@]}\" ${L[@]+\"${L[@]}\"} x", ["x"]),
    ("if [ -z \"$X\" ]; then X=1; else X=2; fi; show $X", ["1"]),
    ("X=a; if [ \"$X\" = b ]; then show 1; elif [[ $X == a ]]; then show 2; else show 3; fi", ["2"]),
    ("X=4; if [ $X -gt 3 ] && ! test -z \"$X\"; then show y; fi", ["y"]),
    (f"if [ {'! ' * 1001} a = b ]; then show y; fi", ["y"]),
    ("if ((2 > 1)); then show y; else show n; fi", ["y"]),
    ("X=b; case \"$X\" in a|b) show 1;; *) show 2;; esac", ["1"]),
    ("[ -n \"${X:-}\" ] && X=1; [ -n \"${X:-}\" ] || X=2; show $X", ["2"]),
    ("true && A=1 || A=2; false || B=3; show $A $B", ["1", "3"]),
    ("A=1; (A=2; show $A); { A=3; }; show $A", ["2", "3"]),
    ("f() { show \"$1\" \"${2:-x}\" $#; A=$2; }; f a; f b c; show $A", ["a", "x", "1", "b", "c", "2", "c"]),
    ("function f { shift; show \"$@\"; return; show z; }; f a b c", ["b", "c"]),
    ("A=1; unset A; show ${A:-2}", ["2"]),
    ("set -euo pipefail; show a; exit 0; show b", ["a"]),
    ("set -- a b c; shift 2; show $# $1 \"$@\"; shift 3; show $#", ["1", "c", "c", "1"]),
    ("f() { show \"${@:2}\" ${@:3}; }; f a b c", ["b", "c", "c"]),
    ("A=1; f() { local A=2 B=3; local C; C=4; D=$C; }; f; show $A \"${B-}${C-}\" $D", ["1", "", "4"]),
    ("f() { set -- x; show $1; }; set -- a; f b; show $1", ["x", "a"]),
    ("A=1; [ $A = 2 ] && [ $B = 3 ] && A=4; [ $A = 1 ] || [ $B = 3 ] || A=5; show $A", ["1"]),
    ("A=1; [ \"$(echo 1)\" = 1 ] && false || A=3; show $A", ["3"]),
]  # fmt: skip


@pytest.mark.parametrize(("script", "words"), WORDS)
def test_words(script, words):
    commands, problems = read_shell(script)
    shown = [command[1:] for command in commands if known(command[0].text) == "show"]
    assert [known(field.text) for fields in shown for field in fields] == words
    assert problems == []


@pytest.mark.parametrize(("script", "words"), WORDS)
def test_bash_agrees(script, words, bash, tmp_path):
    path = tmp_path / "script.sh"
    path.write_text('show() { for w in "$@"; do printf "%s\\0" "$w" >&3; done; }\nexec 3>"$OUT"\n' + script)
    out = tmp_path / "out"
    subprocess.run(
        [bash, path], env={"OUT": str(out), "PATH": "/usr/bin:/bin"}, check=False, capture_output=True
    )
    assert out.read_text().split("\0")[:-1] == words


def test_a_script_that_gives_up_is_read_as_if_it_went_on():
    """The only deviation from bash: the script is read for its training, even if it would exit before."""
    commands, _ = read_shell('if [ -z "$MODEL" ]; then\n  echo "usage"; exit 1\nfi\nshow a')
    assert [known(command[0].text) for command in commands] == ["echo", "show"]


#: Scripts that call ``show`` with one word, the word as far as known, and the reason why it is unknown.
UNKNOWN = [
    ("show $X/a", "$X/a", "the script does not set $X"),
    ("show ${HOME:-/root}", "${HOME:-/root}", "the script does not set $HOME"),
    ("A=~/a; show $A", "~/a", "the script does not set $HOME"),
    ("show k={1,2}", "k={1,2}", "bash expands the unquoted braces to several words"),
    ("case a in a) X=1 ;& b) X=2 ;; c) X=3 ;; esac; show $X", "$X", "the condition in line 1 cannot be evaluated"),
    ("set -- $X; show ${@:0}", "${@:0}", "some words of $@ are unknown"),
    ("show ${X:?}", "${X:?}", "the script requires $X"),
    ("show $1", "$1", "the script's argument $1 is unknown"),
    ("show $#", "$#", "$# is only known when the script runs"),
    ("show a=$(nproc)", "a=$(nproc)", "the output of a command is unknown"),
    ("show $(echo \")\" ')' # )\n)", "$(echo \")\" ')' # )\n)", "the output of a command is unknown"),
    ("show <(ls)", "(ls)", "the output of a command is unknown"),
    ("A=a.b; show ${A%.b}", "${A%.b}", "this form of expansion is not supported"),
    ("A=a; show ${!A}", "${!A}", "this form of expansion is not supported"),
    ("L=(a b); show ${L[-1]}", "${L[-1]}", "this element of $L cannot be determined"),
    ("show $((X + 1))", "$((X + 1))", "the script does not set $X"),
    ("X=a; show $((X + 1))", "$((X + 1))", "in '$((X + 1))', $X is 'a', not a whole number"),
    ("show $((1 / 0))", "$((1 / 0))", "in '$((1 / 0))', the divisor is zero"),
    ("show $((9223372036854775807 + 1))", "$((9223372036854775807 + 1))", "in '$((9223372036854775807 + 1))', a number exceeds 64 bits"),
    *(
        (f"show $(({text}))", f"$(({text}))", f"in '$(({text}))', only + - * / %, comparisons and brackets are supported")
        for text in ("2 ** 3", "010", "1_0", "1 ? 2 : 3", "1 and 2", "1 << 2", "1 < 2 < 3", "True", "(1)(2)")
    ),
    ("show $'a\\tb'", "$'a\\tb'", "this form of expansion is not supported"),
    ("X=1; (( X++ )); show $X", "$X", "$X is calculated when the script runs"),
    ("read -r X; show $X", "$X", "$X is set when the script runs"),
    ("if ray status; then X=1; else X=2; fi\nshow $X", "$X", "the condition in line 1 cannot be evaluated"),
    ("X=1\nif [ -f a ]; then X=2; fi\nshow $X", "$X", "the condition in line 2 cannot be evaluated"),
    ("case $(uname) in a) X=1;; *) X=2;; esac; show $X", "$X", "the condition in line 1 cannot be evaluated"),
    ("for X in 1 2; do show $X; done", "$X", "the loop in line 1 sets it"),
    ("for ((X=0; X<3; X++)); do show $X; done", "$X", "$X is calculated when the script runs"),
]  # fmt: skip


@pytest.mark.parametrize(("script", "text", "why"), UNKNOWN)
def test_unknown(script, text, why):
    commands, problems = read_shell(script)
    (fields,) = [command[1:] for command in commands if known(command[0].text) == "show"]
    assert [(written(field.text), reason(field.text)) for field in fields] == [(text, why)]
    assert known(fields[0].text) is None
    assert problems == []


def test_branches_that_agree_leave_no_doubt():
    commands, _ = read_shell("if a; then X=1; Y=1; elif b; then X=1; Y=2; else X=1; fi; show $X $Y")
    assert [known(field.text) for field in commands[-1]] == ["show", "1", None]


def test_a_branch_that_gives_up_does_not_count():
    commands, _ = read_shell("X=1; if a; then X=2; exit 1; fi; b || { X=3; exit; }; show $X")
    assert [known(field.text) for field in commands[-1]] == ["show", "1"]


def test_words_that_only_some_branches_add_have_unknown_values():
    script = 'L=(a=1 b=2)\nif x; then L+=(b=3 c=4); else L+=(c=4 d=5); fi\nshow "${L[@]}" ${#L[@]}'
    fields = read_shell(script)[0][-1]
    assert [(written(field.text), known(field.text) is not None) for field in fields[1:]] == [
        ("a=1", True), ("b=2", True), ("b=3", False), ("c=4", True), ("d=5", False), ("${#L[@]}", False),
    ]  # fmt: skip
    assert reason(fields[3].text) == "the condition in line 2 cannot be evaluated"


def test_words_added_in_a_loop():
    fields = read_shell('L=(a=1); for i in 1 2; do L+=(b=$i); done; show "${L[@]}"')[0][-1]
    assert [(written(field.text), known(field.text)) for field in fields[1:]] == [
        ("a=1", "a=1"),
        ("b=$i", None),
    ]


SYNTAX = [
    ("show 'a", 5, "the quote that opens here is never closed"),
    ("show $((1 + 2)", 5, "the bracket that opens here is never closed"),
    ("show ${a", 5, "the bracket that opens here is never closed"),
    ("show ${a:-b", 5, "the brace that opens here is never closed"),
    ("L=(a b", 2, "the bracket that opens here is never closed"),
    ("L=(a ; b)", 5, "';' is not allowed in an array"),
    ("if a; then b", 0, "'if' has no 'fi'"),
    ("case a in b) c", 0, "'case' has no 'esac'"),
    ("case a in b; esac", 11, "a pattern of 'case' has no ')' after it"),
    ("{ a; ", 0, "'{' has no '}'"),
    ("a; fi", 3, "'fi' does not close anything"),
    ("[[ a == b; a", 2, "'[[' has no ']]'"),
    ("show a(b)", 6, "a bracket is not allowed here"),
    ("cat <<EOF\na\n", 4, "the here-document that begins here does not end with a line 'EOF'"),
    ("$(( " * 30, 0, "the bracket that opens here is never closed"),
    ("{ " * 30, 51, "the script is nested deeper than 25 levels"),
]  # fmt: skip


@pytest.mark.parametrize(("script", "at", "message"), SYNTAX)
def test_syntax(script, at, message):
    problems = read_shell(script)[1]
    assert (problems[0].place, problems[0].message) == (Location("", 1, at + 1), message)
    assert problems[0].remedy


def test_reading_goes_on_behind_a_mistake():
    commands, problems = read_shell("a; fi; ) ;; b | ; | c")
    assert [known(command[0].text) for command in commands] == ["a", "b", "c"]
    assert len(problems) == 3


@pytest.mark.parametrize(
    ("script", "message"),
    [
        ("A=xx\n" + "A=$A$A\n" * 1000, None),
        ("L=(a)\n" + 'L=("${L[@]}" "${L[@]}")\n' * 20, None),
        ("L=(a)\n" + 'L=("${L[@]}" "${L[@]}")\n' * 1000, "the script expands to too much text"),
        ("for a in b; do " * 20 + "c; " + "done; " * 20, "the script expands to too much text"),
        ("".join(f"f{i}() {{ f{i + 1}; f{i + 1}; }}\n" for i in range(25)) + "f0", "the script expands to too much text"),
        ("".join(f"f{i}() {{ f{i + 1}; }}\n" for i in range(99)) + "f0", "commands or function calls are nested too deeply"),
    ],
)  # fmt: skip
def test_growth_is_bounded(script, message, monkeypatch):
    if message:
        monkeypatch.setattr(expansion, "MAX_TOTAL", 100_000)
    _, problems = read_shell(script)
    assert [problem.message for problem in problems] == ([message] if message else [])


def test_a_value_that_grows_too_long_is_unknown():
    commands, _ = read_shell("A=xx\n" + "A=$A$A\n" * 30 + "show k=$A")
    assert reason(commands[-1][1].text) == "it is longer than 100000 characters"
    assert written(commands[-1][1].text).startswith("k=")
