"""The table of response lengths, and problems of its options."""

from __future__ import annotations

import pytest

MODEL = (":model: Qwen/Qwen2.5-7B", ":gpus: 8*H100")
BAD = [
    ((MODEL[1],), {6: "set a model, as in :model: Qwen/Qwen2.5-7B-Instruct"}),
    (MODEL[:1], {6: "set the number and type of GPUs, as in :gpus: 8*H100"}),
    ((":model: Qwen/Qwen2.5-7C", MODEL[1]), {6: "model: unknown model 'Qwen/Qwen2.5-7C'; did you mean"}),
    ((MODEL[0], ":gpus: 8*H1000"), {6: ":gpus: unknown GPU 'H1000'; did you mean 'H100'?"}),
    ((*MODEL, ":responses: long"), {6: ":responses: must be a whole number from 1 to 10,000,000, got 'long'"}),
    ((*MODEL, "", "data.max_response_length: 8"), {6: "data.max_response_length differs between the rows; set the lengths with :responses:"}),
    ((*MODEL, "", "actor_rollout_ref.rollout.n: 0"), {10: "actor_rollout_ref.rollout.n: expected a whole number of at least 1, got 0"}),
]  # fmt: skip


@pytest.mark.parametrize(("options", "messages"), BAD)
def test_what_is_wrong_is_said_at_its_line(project, written, problems, options, messages):
    build = project.page(f"Before.\n\n{written(('verl-lengths', *options))}\n\nAfter.\n").build()
    found = problems(build)
    assert list(found) == list(messages), build.warnings
    for line, message in messages.items():
        assert found[line].startswith(f"ERROR: verl-lengths: {message}"), found[line]
    assert not build.soup().select("table")


def test_rows_grow_down(project, written, table_rows):
    lines = (*MODEL, ":responses: 1024 8192 32768", "", "actor_rollout_ref.actor.use_dynamic_bsz: true")
    build = project.page(written(("verl-lengths", *lines))).build()
    assert build.warnings == []
    headings, *rows = table_rows(build.soup(), "verl-lengths")
    assert headings[0] == "Response (tokens)"
    assert [row[0] for row in rows] == ["1,024", "8,192", "32,768"]
    for column in (1, 2, 4):
        numbers = [float(row[column].replace(",", "")) for row in rows]
        assert numbers == sorted(numbers), headings[column]
    assert len(set(rows[-1])) > 1
