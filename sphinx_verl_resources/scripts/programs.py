"""The programs that a launch script starts: verl's trainers and others."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Literal, NamedTuple

from ..diagnostics import Location
from .values import Word, known, written

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

#: ``rl`` is training with reinforcement learning; the other kinds have no run to record.
Kind = Literal["rl", "sft", "generation", "evaluation", "conversion", "data", "script", "cluster", "other"]

#: Patterns for the names of other programs in verl's repository and recipes.
_NAMES: Mapping[Kind, re.Pattern[str]] = {
    "sft": re.compile(r"sft_trainer|(?:\A|[./])main_sft|(?:\A|[./])sft_main"),
    "generation": re.compile(r"(?:\A|[./])main_gen(?:eration)?(?:_|\Z)"),
    "evaluation": re.compile(r"(?:\A|[./])main_eval"),
    "conversion": re.compile(r"model_merger|(?:\A|[./])converter_|hf_to_mcore"),
    "data": re.compile(r"data_preprocess|(?:\A|[./])(?:preprocess|prepare|create)_|_dataset\Z"),
}
_MODULE = r"[a-z_]\w*(?:\.[a-z_]\w*)+"


class Program(NamedTuple):
    """A program that a script starts.

    Attributes:
        name: its name as written, without ``.py``; empty if unknown.
        kind: its purpose.
        place: the place of the command.
        arguments: the words after the name.
    """

    name: str
    kind: Kind
    place: Location = Location("")
    arguments: Sequence[Word] = ()

    @property
    def module(self) -> str:
        """The dotted name; for a file, derived from its path, as in ``recipe.dapo.main_dapo``."""
        return self.name.strip("./").replace("/", ".")


def program_of(command: Sequence[Word]) -> Program | None:
    """Return the program that a command starts; if there are several, the one that trains.

    >>> words = "torchrun --nproc_per_node=8 -m verl.trainer.sft_trainer data.max_length=2048".split()
    >>> program_of([Word((word,)) for word in words])[:2]
    ('verl.trainer.sft_trainer', 'sft')
    """
    words = [known(word.text) or "" for word in command]
    names: dict[int, str] = {}
    for at, word in enumerate(words):
        if (at and words[at - 1] == "-m") or word.endswith(".py"):
            names[at] = word.removesuffix(".py")
            # The argument of a launcher is the module that it starts.
            if at + 1 < len(words) and re.fullmatch(_MODULE, words[at + 1]):
                names[at + 1] = words[at + 1]
    place = command[0].place
    if names:
        kinds = {at: kind_of(name) for at, name in names.items()}
        at = min(names, key=lambda at: (kinds[at] != "rl", kinds[at] == "other"))
        return Program(names[at], kinds[at], place, command[at + 1 :])
    if words[0] == "ray" and words[1:2] in (["start"], ["stop"]):
        return Program(" ".join(words[:2]), "cluster", place)
    scripts = [name for name in (written(word.text) for word in command[1:]) if name.endswith(".sh")]
    return Program(scripts[0], "script", place) if words[0] in {"bash", "sh", "exec"} and scripts else None


def kind_of(name: str) -> Kind:
    """Return the purpose of a program, by the name of its module or file.

    >>> kind_of("verl.trainer.main_ppo"), kind_of("recipe/dapo/main_dapo"), kind_of("verl.trainer.main_eval")
    ('rl', 'rl', 'evaluation')
    >>> kind_of("examples/data_preprocess/gsm8k"), kind_of("plot")
    ('data', 'other')
    """
    for kind, pattern in _NAMES.items():
        if pattern.search(name):
            return kind
    package, _, last = name.replace("/", ".").rpartition(".")
    trains = last.startswith("main_") or last.endswith("_main")
    return "rl" if trains or (last == "main" and "verl" in package.split(".")) else "other"
