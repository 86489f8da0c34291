"""The programs that a launch script starts: verl's trainers and others."""

from __future__ import annotations

import re
from itertools import islice, pairwise
from typing import TYPE_CHECKING, Literal, NamedTuple

from ..diagnostics import Location
from .shell.variables import Argument, known, written

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

#: ``rl`` is training with reinforcement learning; the other kinds have no run to record.
Kind = Literal["rl", "sft", "generation", "evaluation", "conversion", "data", "script", "cluster", "other"]
Command = tuple[Argument, ...]

#: Patterns for the names of other programs in verl's repository and recipes.
_NAMES: tuple[tuple[Kind, re.Pattern[str]], ...] = (
    ("sft", re.compile(r"sft_trainer|(?:\A|[./])main_sft|(?:\A|[./])sft_main")),
    ("generation", re.compile(r"(?:\A|[./])main_gen(?:eration)?(?:_|\Z)")),
    ("evaluation", re.compile(r"(?:\A|[./])main_eval")),
    ("conversion", re.compile(r"model_merger|(?:\A|[./])converter_|hf_to_mcore")),
    ("data", re.compile(r"data_preprocess|(?:\A|[./])(?:preprocess|prepare|create)_|_dataset\Z")),
)
_MODULE = re.compile(r"[a-z_]\w*(?:\.[a-z_]\w*)+")
_NAMED = re.compile(rf"\s-m\s+(?P<module>{_MODULE.pattern})(?=\s|\Z)")
_SHELLS = frozenset({"bash", "sh", "source", "."})


class Program(NamedTuple):
    """A program that a script starts.

    Attributes:
        name: its name as written, without ``.py``; empty if unknown.
        kind: its purpose.
        place: the place of the command.
        launcher: the known words before the name, for example torchrun and its options.
    """

    name: str
    kind: Kind
    place: Location = Location("")
    launcher: tuple[str, ...] = ()

    @property
    def module(self) -> str:
        """The dotted name; for a file, derived from its path, as in ``recipe.dapo.main_dapo``."""
        return self.name.strip("./").replace("/", ".")


class Started(NamedTuple):
    """A command that starts a program, with the arguments after the program's name."""

    command: Command
    arguments: Sequence[Argument]
    name: str
    kind: Kind

    @property
    def launcher(self) -> tuple[str, ...]:
        """The known words before the arguments."""
        before = self.command[: len(self.command) - len(self.arguments)]
        return tuple(known(argument.text) or "" for argument in before)


def started(commands: Iterable[Command]) -> list[Started]:
    """Return the commands that start programs, in the order of the script.

    >>> words = "torchrun --nproc_per_node=8 -m verl.trainer.sft_trainer data.max_length=2048".split()
    >>> [(found.name, found.kind) for found in started([tuple(Argument((word,)) for word in words)])]
    [('verl.trainer.sft_trainer', 'sft')]
    """
    return [found for command in commands for found in _started(command)]


def _started(command: Command) -> Iterator[Started]:
    """Yield the program that a command starts; if there are several, the one that trains."""
    words = [known(argument.text) or "" for argument in command]
    names = {
        index: word.removesuffix(".py")
        for index, (before, word) in enumerate(pairwise(words), 1)
        if before == "-m" or word.endswith(".py")
    }
    # The argument of a launcher is the module that it starts.
    inner = {at + 1: words[at + 1] for at in names if _MODULE.fullmatch("".join(words[at + 1 : at + 2]))}
    kinds = {at: kind_of(name) for at, name in (names | inner).items()}
    best = min(kinds, key=lambda at: (kinds[at] != "rl", kinds[at] == "other"), default=None)
    if best is not None:
        yield Started(command, command[best + 1 :], (names | inner)[best], kinds[best])
    elif words[:2] in (["ray", "start"], ["ray", "stop"]):
        yield Started(command, (), " ".join(words[:2]), "cluster")
    elif words[0] in {*_SHELLS, "exec"}:
        scripts = (name for name in (written(word.text) for word in command[1:]) if name.endswith(".sh"))
        yield from (Started(command, (), name, "script") for name in islice(scripts, 1))


def named_in(command: Command) -> str:
    """Return the module in the text of a command with unknown words; empty if there is none.

    >>> named_in((Argument(("torchrun --nnodes=1 -m verl.trainer.sft_trainer",)), Argument(("a.b=1",))))
    'verl.trainer.sft_trainer'
    """
    named = _NAMED.search(" ".join(written(argument.text) for argument in command))
    return named["module"] if named else ""


def kind_of(name: str) -> Kind:
    """Return the purpose of a program, by the name of its module or file.

    >>> kind_of("verl.trainer.main_ppo"), kind_of("recipe/dapo/main_dapo"), kind_of("verl.trainer.main_eval")
    ('rl', 'rl', 'evaluation')
    >>> kind_of("examples/data_preprocess/gsm8k"), kind_of("plot")
    ('data', 'other')
    """
    named = next((kind for kind, pattern in _NAMES if pattern.search(name)), None)
    if named:
        return named
    package, _, last = name.replace("/", ".").rpartition(".")
    trains = last.startswith("main_") or last.endswith("_main")
    return "rl" if trains or (last == "main" and "verl" in package.split(".")) else "other"
