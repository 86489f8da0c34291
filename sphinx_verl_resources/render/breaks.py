"""Where long names may go on in the next line: behind what divides them, and not within a word."""

from __future__ import annotations

import re

#: Behind these characters; hyphens need no help.
BREAKS = re.compile(r"(?<=[_/=])(?=\w)|(?<=\.)(?=[^\W\d])")
#: Words up to this long stay in one piece.
SHORT = 10


def unbroken(word: str) -> list[str]:
    """The pieces of a word between which a line may end.

    >>> unbroken("actor_rollout_ref.actor")
    ['actor_', 'rollout_', 'ref.', 'actor']
    >>> unbroken("lora_rank")
    ['lora_rank']
    """
    return BREAKS.split(word) if len(word) > SHORT else [word]
