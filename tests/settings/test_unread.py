"""Text in a script that looks like a setting but was not read is reported in one message."""

from __future__ import annotations

import pytest

from sphinx_verl_resources.diagnostics import Location
from sphinx_verl_resources.settings.read import read_script
from sphinx_verl_resources.settings.unread import unread_settings

TRAIN = "python3 -m verl.trainer.main_ppo trainer.nnodes=2 data.train_batch_size=64\n"


def unread(text):
    return [str(item.place) for item in unread_settings(text, read_script(text, "run.sh"), "run.sh")]


@pytest.mark.parametrize(
    ("more", "place"),
    [
        ("python3 other.py data.seed=1\n", "2:18"),
        ("python3 -m verl.trainer.main_ppo \\\n  data.seed=1\n", "3:3"),
        ("cat > conf <<EOF\ndata.seed=1\nEOF\n", "3:1"),
        ("for i in 1 2; do\n  python3 x.py data.seed=$i\ndone\n", "3:16"),
        ("never() {\n  python3 x.py +data.seed=1\n}\n", "3:17"),
        ("X='data.seed=1 data.shuffle=False'\n", "2:4"),
        ("# data.seed=1\nY=1 # data.seed=2\n", ""),
        ("curl https://a.example/b?c.d=1\n", ""),
        ("python3 x.py --some.option=1 trainer.nnodes=2\n", ""),
        ("python3 x.py hydra.run.dir=x\n", ""),
        ("cat > c.yaml <<EOF\ntrainer:\n  nnodes: 4\nEOF\n", "3:1"),
        ("echo data: 4\necho 'trainer: x'\n", ""),
    ],
)
def test_below_the_command(more, place):
    found = unread(TRAIN + more)
    assert found[:1] == ([f"run.sh:{place}"] if place else [])


def test_what_comes_through_variables_counts_as_read():
    text = 'N=2\nARGS="data.seed=$N data.shuffle=True"\nMORE=(\n  trainer.nnodes=$N\n)\n'
    text += 'python3 -m verl.trainer.main_ppo $ARGS "${MORE[@]}"\n'
    assert unread(text) == []


@pytest.mark.parametrize(
    ("condition", "place"),
    [("[ $X = b ]", []), ("[ -f x ]", ["run.sh:3:16"]), ("[ $X = a ]", ["run.sh:3:16"])],
)
def test_a_branch_that_is_not_taken_sets_nothing(condition, place):
    text = f"X=a\nif {condition}; then\n  python3 x.py data.seed=1\nfi\n"
    assert unread(text + TRAIN) == place


def test_a_value_that_a_variable_loses_again():
    text = "ARGS=(data.seed=1)\nARGS=(data.seed=2)\n"
    assert unread(text + 'python3 -m verl.trainer.main_ppo "${ARGS[@]}"\n') == []


def test_what_is_reported_hides_nothing_else():
    text = f"{TRAIN.rstrip()} data.seed=1 data.seed=$X; python3 x.py data.shuffle=True\npython3 y.py data.seed=4\n"
    column = text.index("data.shuffle") + 1
    (problem,) = unread_settings(text, read_script(text, "run.sh"), "run.sh")
    assert problem.place == Location("run.sh", 1, column)
    assert problem.message.endswith("data.shuffle (line 1), data.seed (line 2)")


def test_many_are_one_message():
    text = TRAIN + "".join(f"python3 x.py a.b{number}=1\n" for number in range(90))
    (problem,) = unread_settings(text, read_script(text, "run.sh"), "run.sh")
    assert problem.message.startswith("90 settings were not read")
    assert problem.message.endswith("a.b0 (line 2), a.b1 (line 3), a.b2 (line 4) and 87 more")
