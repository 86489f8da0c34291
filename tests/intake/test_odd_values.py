"""Values that no configuration has are ignored in a log."""

from __future__ import annotations

import pytest

from sphinx_verl_resources.cli import main

#: Values that Python can read and verl never prints.
ODD = {
    "hexadecimal": f"0x{'f' * 20_000}",
    "longer than any GPU's memory": "9" * 400,
    "more digits than Python takes": "9" * 5_000,
    "infinite": "1e999",
    "no number": "nan",
    "complex": "1j",
    "bytes": "b'x'",
    "an ellipsis": "...",
    "a set": "{1}",
    "an object": "<Strategy.FSDP: 1>",
    "signs": f"{'-' * 5_000}1",
}
#: Keys with a word, a boolean and a number.
KEYS = (
    "actor_rollout_ref.ref.fsdp_config.model_dtype",
    "actor_rollout_ref.model.mtp.enable",
    "trainer.nnodes",
)


def nested(key: str, value: str) -> str:
    """Return a configuration as verl prints it, with the model and one other value."""
    names = key.split(".")
    inner = value
    for name in reversed(names):
        inner = f"{{'{name}': {inner}}}"
    return f"{{'data': {{'train_batch_size': 64}}, {inner[1:]}"


@pytest.mark.parametrize("key", KEYS)
@pytest.mark.parametrize("inside", ["{}", "[[{}]]", "{{'a': {}}}", "{{{}: 1}}"])
def test_an_odd_value_is_left_out(key, inside, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    for what, value in ODD.items():
        line = nested(key, inside.format(value))
        (tmp_path / "a.log").write_text(f"(TaskRunner pid=1) {line}\n", "utf-8")
        for words in (
            ["diagnose", "a.log", "Qwen/Qwen2.5-7B", "--gpus", "8xH100"],
            ["new", "--log", "a.log", "--dry-run", "--verbose"],
        ):
            assert main(words) in {0, 1}, what
            lines = [line for line in capsys.readouterr().err.splitlines() if "cannot be read" in line]
            assert lines or "1}" in inside or "new" in words, what
            assert all(line.startswith("a.log:1:1: WARNING: the") for line in lines)
            assert not any("set_int_max_str_digits" in line for line in lines)
