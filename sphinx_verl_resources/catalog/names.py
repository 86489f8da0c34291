"""The fixed vocabularies of the data: size classes, tags, kinds, backends, engines, components of memory."""

from __future__ import annotations

import math
import re
from itertools import chain, count
from typing import TYPE_CHECKING, Literal, get_args

if TYPE_CHECKING:
    from collections.abc import Container, Iterable

#: The sections of the hardware page, in order; each is shown even if it has no runs.
PAGE_SIZES = ("0.5B", "1.5B", "3B", "7B", "14B", "32B", "70B", "405B", "671B")
#: All size classes, ascending. A class that is not in ``PAGE_SIZES`` is shown once it has a run.
SIZES = ("0.5B", "1.5B", "3B", "7B", "14B", "32B", "70B", "122B", "235B", "405B", "671B")

Tag = Literal["MIN", "RECOMMENDED"]
TAGS: tuple[str, ...] = get_args(Tag)

Kind = Literal["tested", "measured", "stated", "script-default"]
#: From the strongest claim to the weakest.
KINDS: tuple[str, ...] = get_args(Kind)

Word = Literal["ran", "reported", "claimed"]
#: The evidence for a run, from the strongest to the weakest. Computed results are "estimated".
WORDS: tuple[Word, ...] = get_args(Word)

#: The last token of verl's script names, see verl's hook ``check-example-naming``.
Train = Literal[
    "fsdp",
    "fsdp2",
    "fsdp_turbo",
    "megatron",
    "megatron_lite",
    "mindspeed",
    "automodel",
    "veomni",
    "torchtitan",
]
TRAIN_BACKENDS: tuple[str, ...] = get_args(Train)

Engine = Literal["vllm", "sglang", "trtllm", "hf"]
ENGINES: tuple[str, ...] = get_args(Engine)

PageColumn = Literal["tag", "model", "task", "gpus", "max_batch", "train", "infer", "script", "contributor"]
#: The columns of the hardware page, in order.
PAGE_COLUMNS: tuple[str, ...] = get_args(PageColumn)

Verdict = Literal["fits", "borderline", "depends-on-lengths", "does-not-fit", "unknown"]
#: The verdicts on a run, from the best to the worst, then the undecided one.
VERDICTS: tuple[Verdict, ...] = get_args(Verdict)

Component = Literal["parameters", "gradients", "optimizer", "activations", "kv-cache", "overhead"]
#: The components of the memory analysis, in the order of its sums.
COMPONENTS: tuple[str, ...] = get_args(Component)
#: The components that are the state of the model in training.
STATE_COMPONENTS = ("parameters", "gradients", "optimizer")
#: Other figures of the analysis: the sum of the states, and the total.
STATES, TOTAL = "states", "total"
#: The largest number of GPUs; no cluster is larger.
MOST_GPUS = 100_000
#: The default task of questions.
DEFAULT_TASK = "GRPO"
#: The choices in the form of ``verl-what-if``: GPUs of recorded runs and other common GPUs, numbers of GPUs,
#: and response lengths in tokens.
FORM_GPUS = (
    "RTX-4090", "RTX-5090", "A100-40GB", "L20", "L40S", "Ascend-A2", "Ascend-A3", "A100-80GB", "H100", "H800",
    "H20", "H200", "B200", "MI300X",
)  # fmt: skip
FORM_COUNTS = (1, 2, 4, 8, 16, 32, 64, 128, 256)
FORM_RESPONSES = (512, 1024, 2048, 4096, 8192, 16384, 32768)
#: The largest values that the analysis accepts; larger ones are typing errors.
LIMITS = {"gpus": MOST_GPUS, "batch-size": 1_000_000, "sequence-length": 10_000_000}
#: Further subjects of remarks, besides components, the total and named entries such as steps.
REQUIREMENTS = "requirements"
ASSUMED_SUBJECTS = (
    "vocabulary-size",
    "sequence-length",
    "batch-size",
    "ffn-ratio",
    "memory-limit",
    "gpus",
)

#: The settings of the LoRA rank: with FSDP, and with Megatron.
ADAPTER_RANKS = ("actor_rollout_ref.model.lora_rank", "actor_rollout_ref.model.lora.rank")

#: The groups of cases whose errors are recorded separately.
CASE_GROUPS = TRAINING, FSDP, FSDP_TODAY, MEGATRON, EASYR1, OTHER = (
    "training",  # Plain fine-tuning with FSDP, with known token counts.
    "fsdp",  # Dense text models without critic, verl up to v0.7.1 with FSDP.
    "fsdp-today",  # The same with verl v0.8.0 or later.
    "megatron",  # Any training with Megatron.
    "easyr1",  # Logs of EasyR1, whose counter is unknown.
    "other",  # Any other training with FSDP: experts, vision, a critic.
)


def sizes_hint(text: str) -> str:
    """Return a hint with the size class nearest to ``text`` and all size classes."""
    near = nearest_size(text, SIZES)
    listed = f"the size classes are {', '.join(SIZES)}"
    return f"the nearest is {near}; {listed}" if near else listed


def nearest_size(text: str, names: Iterable[str]) -> str | None:
    """Return the size in ``names`` nearest to ``text``, for example to 9B."""
    wanted = _billions(text)
    sizes = {name: size for name in names if (size := _billions(name))}
    if not wanted or not sizes:
        return None
    return min(sizes, key=lambda name: abs(math.log(sizes[name] / wanted)))


def _billions(text: str) -> float:
    """Return the number in a text such as 7B; 0 for any other text."""
    match = re.fullmatch(r"(\d{1,4}(?:\.\d{1,3})?)\s*B", text.strip(), re.IGNORECASE)
    return float(match[1]) if match else 0.0


def size_class(parameters: float) -> str:
    """Return the size class nearest to a number of parameters, by ratio.

    >>> size_class(8.2e9), size_class(72.7e9)
    ('7B', '70B')
    """
    nearest = nearest_size(f"{min(max(parameters / 1e9, 0.001), 9999):.3f}B", SIZES)
    return nearest or SIZES[0]


def size_slug(size: str) -> str:
    """Return the id of a size class's section: ``0.5B`` becomes ``size-0-5b``.

    Sphinx's search would split an id at a dot.
    """
    return f"size-{size.lower().replace('.', '-')}"


def row_id(run_id: str) -> str:
    """Return the id of a run's row."""
    return f"run-{run_id}"


def free_name(stem: str, taken: Container[str]) -> str:
    """Return ``stem``, or ``stem-2`` and so on if it is taken."""
    names = chain([stem], (f"{stem}-{number}" for number in count(2)))
    return next(name for name in names if name not in taken)


def run_class(run_id: str) -> str:
    """Return the CSS class of all page elements about a run."""
    return f"verl-run-{run_id}"


def family(task: str) -> str:
    """Return the algorithm of a task without its variant.

    >>> family("GRPO-LoRA"), family("DAPO (fully async)"), family("Dr-GRPO")
    ('GRPO', 'DAPO', 'Dr-GRPO')
    """
    return re.split(r"[\s([]|-lora\b", task, maxsplit=1, flags=re.IGNORECASE)[0] or task


def with_adapters(task: str) -> str:
    """Return the LoRA variant of a task.

    >>> with_adapters("GRPO"), with_adapters("DAPO (fully async)")
    ('GRPO-LoRA', 'DAPO-LoRA (fully async)')
    """
    name, blank, variant = task.partition(" ")
    return f"{name}-LoRA{blank}{variant}"


def fold(name: str) -> str:
    """Return a name for comparison, without case, spaces, hyphens and underscores."""
    return name.casefold().translate(_SEPARATORS)


_SEPARATORS = str.maketrans("", "", " -_")
