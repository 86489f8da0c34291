"""Real inputs of the project, changed at random; the same seed, kind and number give the same input."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any

import yaml
from failure_logs import log_of
from security.fuzz.mutations import (
    NUMBERS,
    ODD,
    YAML_WORDS,
    changed,
    encoded,
    mutated,
    nested,
    yaml_text,
)

if TYPE_CHECKING:
    from collections.abc import Iterable

ROOT = Path(__file__).resolve().parents[3]
#: The kinds of files by number: mostly runs, sometimes each other kind.
_NAMES = (
    *["runs/{}.yaml"] * 12, *["cases/{}.yaml"] * 4, "gpus.yaml", "architectures.yaml", "analysis.yaml",
    "config_keys.yaml", "accuracy.yaml", "exceptions.yaml",
)  # fmt: skip


def _texts(paths: Iterable[Path]) -> tuple[str, ...]:
    return tuple(path.read_text("utf-8") for path in sorted(paths))


@cache
def _data_texts(name: str) -> tuple[str, ...]:
    return _texts((ROOT / "data").glob(name.format("*")))


@cache
def _parsed(text: str) -> Any:
    return yaml.load(text, Loader=yaml.CSafeLoader)


def _excerpt(random: Random, data: Any) -> Any:
    """Some items of each long list."""
    if isinstance(data, dict):
        return {key: _excerpt(random, item) for key, item in data.items()}
    return random.sample(data, min(len(data), random.choice((1, 2, 4)))) if isinstance(data, list) else data


def data_file(seed: int, number: int) -> tuple[str, bytes]:
    """The name and the content of a file of a data directory."""
    random = Random(f"data {seed} {number}")
    template = _NAMES[number % len(_NAMES)]
    texts = _data_texts(template)
    text = random.choice(texts)
    is_run = template.startswith("runs")
    name = template.format(f"r{number}")
    if is_run:
        text = re.sub(r"^id: .*", f"id: r{number}", text, flags=re.MULTILINE)
    if not is_run or random.random() < 0.6:
        data = dict(_parsed(text), id=f"r{number}") if is_run else _excerpt(random, _parsed(text))
        text = yaml_text(random, changed(random, data))
    if random.random() < (0.8 if is_run else 0.4):
        text = mutated(
            random,
            text,
            (*YAML_WORDS, *NUMBERS, nested(random, (("[", "]"), ("{a: ", "}"), ("- ", ""), ("? ", "")), "x")),
            texts,
        )
    return name, encoded(random, text)


_NESTS = (
    ("(", ")"), ("$(", ")"), ("$((", "))"), ("$(( -", "))"), ("((", "))"), ("{ ", "; }"), ("${A:-", "}"), ('"$(', ')"'), ("[[ ! ", " ]]"),
    ("! ", ""), ("! ", ""), ("! ", ""), ("( ", " ) "), ("`", "`"), ("if ", "; then x; fi"), ("a=", ""), ("[", "]"), ("{a: ", "}"), ("case x in ", " esac"),
    ("for i in 1; do ", "; done"), ("f() { ", "; }"), ("A=( ", " )"), ("- ", ""), ("1+(", ")"), ("1?", ":1"), ("${#", "}"), ("eval ", ""),
    ("bash -c ", ""), ("cat <<E\n", "\nE\n"), ("x && ", ""), ("x | ", ""), ("x; ", ""), ("2**", "1"), ("~", ""), ("\\", ""),
)  # fmt: skip
_SHELL = (
    "if ", "then ", "else ", "elif ", "fi\n", "for i in ", "while ", "do ", "done\n", "case $A in ", "esac\n", "a) ", ";;", ";",
    " ", "\\\n", "$(", "$((", "))", ")", "(", "{ ", "}", "${A", "${A:-", "${A:=", "${#A}", "${A[@]}", "${A//a/b}", "${A%%.*}",
    '"${L[@]}"', "$@", "$*", "$1", "$?", "$A", "$B", "A=", "L=(1 2)\n", "L+=(", "A+=", "A=$A$A\n", "f() { ", "f ", "[[ ", " ]]", "[ ",
    "-z ", "-f x ", " = ", " == ", " =~ ", "&&", "||", "|", "&", "> /dev/null", "<<E\nx\nE\n", "<<'E'\n", "<(", "2>&1", "#", "~", "! ",
    "-eq ", " ** ", "<<", ">>", "? ", ": ", "python3 -m verl.trainer.main_ppo ", "trainer.nnodes=", "+c.d=", "~e ", "[1,", "{a: ", "null",
    "--config-name ", "exit 1\n", "return\n", "break\n", "unset A\n", "read A\n", "export ", "local ", "declare -A ", "eval ", "bash -c ",
    "source x.sh\n", "set -e\n", "shift\n", "N=$((N * 2))\n", "$((0x", "$((08))", "$((1/0))", "$((9**99999))", "${!A}", "$'\\x41'", "{1..9}",
    "CUDA_VISIBLE_DEVICES=0,1 ", "ray job submit -- ", "torchrun --nproc_per_node=8 ", "a: ", "- ", "---\n",
)  # fmt: skip


@cache
def scripts() -> tuple[str, ...]:
    """The launch scripts of the tests, and settings in YAML and as overrides."""
    found = _texts((ROOT / "tests/intake/scripts").glob("*.sh"))
    return (*found, "data: {train_batch_size: 8}\ntrainer.nnodes: 2\n", "trainer.nnodes=2 +actor.x=[1,2]\n")


def script(seed: int, number: int) -> str:
    """A launch script, or settings in another format."""
    random = Random(f"script {seed} {number}")
    text = mutated(random, random.choice(scripts()), (*_SHELL, *NUMBERS), scripts())
    if random.random() < 0.4:
        deep = nested(random, _NESTS, random.choice(("1", "x", "$A", "a == b", "[[ a == b ]]", "data.x=1")))
        around = random.choice(
            (
                "{}\n",
                "if {}; then A=1; fi\n",
                "A={}\n",
                "[[ {} ]] && B=1\n",
                "[ {} ]\n",
                "A=$(({}))\n",
                "x.y={} ",
            )
        )
        at = random.choice((0, text.rfind("python3"), text.find("\n") + 1, len(text)))
        text = text[:at] + around.format(deep) + text[at:]
    return text


@cache
def logs() -> tuple[str, ...]:
    """The logs of the tests."""
    cases = yaml.safe_load((ROOT / "tests/intake/failures.yaml").read_text("utf-8")).values()
    return (*_texts((ROOT / "tests/intake/logs").glob("*.log")), *(log_of(case).decode() for case in cases))


_LOG_WORDS = (
    "(WorkerDict pid=7) ", "(TaskRunner pid=41) ", "\x1b[36m", "\x1b[0m", "{'a': {'b': ", "{", "}", "[", "]", "'", ": ", ", ", "\r",
    "step:1 - perf/max_memory_allocated_gb:", "np.float64(", "tensor(", "inf", "0x", "Tried to allocate ", " GiB. ", "CUDA out of memory. ",
    "torch.OutOfMemoryError: ", "Traceback (most recent call last):\n", '  File "', '", line ', ", in ", "[repeated 7x across cluster]",
    "ray::WorkerDict.", "Error executing job with overrides: [", "ValueError: ", "actor_rollout_ref", "'model': {'path': 'Qwen/Qwen3-8B'}",
    "  0%|          | 0/1", "+ python3 -m verl.trainer.main_ppo ", "GPU 0 has a total capacity of ", "(pid=", "ip=", "INFO ",
)  # fmt: skip


def log(seed: int, number: int) -> bytes:
    """A log, with configurations and failures."""
    random = Random(f"log {seed} {number}")
    deep = nested(
        random,
        (
            ("{'a': ", "}"),
            ("[", "]"),
            ("(", ")"),
            ("{", ""),
            ("-", ""),
            ("{'data': {'x': [", "]}}"),
            ("'", "'"),
        ),
        "1",
    )
    text = mutated(random, random.choice(logs()), (*_LOG_WORDS, *NUMBERS, deep), logs())
    if random.random() < 0.25:
        value = random.choice((random.choice(NUMBERS), random.choice(ODD), deep))
        text = f"(TaskRunner pid=9) {{'data': {{'train_batch_size': {value}}}, 'trainer': {{'nnodes': 1}}}}\n{text}"
    return encoded(random, text)
