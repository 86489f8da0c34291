"""Recognise out-of-memory messages and read the figures in them."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator

#: Phases that the form of a message implies, and the value for forms that need a traceback.
STARTUP, SYNC, HOST, BY_TRACE = "startup", "weight-sync", "host", ""


class Form(NamedTuple):
    """A form of message.

    Attributes:
        name: its name in ``Failure.form``.
        phase: the phase that the form implies; empty if it needs a traceback.
        word: text that every such message contains.
        pattern: pattern of the message.
        is_evidence: the message proves that memory ran out; otherwise this is one of several possible causes.
    """

    name: str
    phase: str
    word: str
    pattern: re.Pattern[str]
    is_evidence: bool = True


def _form(name: str, phase: str, word: str, pattern: str, *, is_evidence: bool = True) -> Form:
    return Form(name, phase, word, re.compile(pattern), is_evidence)


#: The first form that matches a line is used, so a form that wraps another one comes before it.
FORMS = (
    _form("ray-memory", HOST, "emory", r"killed due to the node running low on memory"),
    _form("ray-memory", HOST, "emory", r"ray\.exceptions\.OutOfMemoryError"),
    _form("ray-memory", HOST, "emory", r"Memory on the node \(.*GB (?:used )?/"),
    _form("raylet-killed", HOST, "emory", r"Workers \(tasks / actors\) killed due to memory pressure"),
    _form("kernel-killed", HOST, "emory", r"Out of memory: Kill(?:ed)? process"),
    _form("kernel-killed", HOST, "emory", r"[Mm]emory cgroup out of memory"),
    _form("kernel-killed", HOST, "OOMKilled", r"\bOOMKilled\b"),
    _form("host-allocator", HOST, "emory", r"DefaultCPUAllocator: .*memory"),
    _form("no-room-for-cache", STARTUP, "emory", r"No available memory for the cache blocks"),
    _form(
        "sequence-too-long-for-cache", STARTUP, "larger than the",
        r"KV cache is needed, which is larger than the available KV cache memory|"
        r"larger than the maximum number of tokens that can be stored in KV cache",
    ),
    _form("warm-up", STARTUP, "warming up", r"out of memory occurred when warming up sampler"),
    _form("not-enough-free-at-start", STARTUP, "emory", r"on startup is less than desired GPU memory util"),
    _form(
        "sglang-pool", STARTUP, "Not enough memory",
        r"Not enough memory\. Please try (?:to increase|increasing) --mem-fraction",
    ),
    _form("sglang-graph", STARTUP, "raph failed", r"Capture (?:cuda )?graph failed: .*out of memory"),
    # Python maps vLLM's pool only to wake up; the C++ line is also printed when weights are loaded.
    _form("wake-up", SYNC, "cumem_allocator", r"Error: CUDA Error: out of memory at \S*cumem_allocator\.cpp"),
    _form("cumem", BY_TRACE, "cumem_allocator", r"CUDA Error: out of memory at \S*cumem_allocator\.cpp"),
    _form("wake-up", SYNC, "memory_saver", r"error: 2 \(out of memory\).*\bfunc=resume\b"),
    _form("memory-saver", BY_TRACE, "memory_saver", r"(?:CUresult|cudaError) error: 2 \(out of memory\)"),
    _form("npu", BY_TRACE, "NPU out of memory", r"NPU out of memory\. "),
    _form("npu", BY_TRACE, "Memory_Allocation_Failure", r"Memory_Allocation_Failure\(EL0004\)"),
    _form("cuda", BY_TRACE, "out of memory", r"(?:CUDA|HIP|XPU) out of memory\. "),
    _form("cuda-bare", BY_TRACE, "out of memory", r"(?:CUDA|HIP) error: out of memory"),
    _form("nccl", BY_TRACE, "out of memory", r"(?:NCCL|RCCL) WARN .*\bout of memory"),
    _form("nccl", BY_TRACE, "out of memory", r"Cuda failure .{0,6}'out of memory'"),
    _form("cublas", BY_TRACE, "ALLOC_FAILED", r"\bCUBLAS_STATUS_ALLOC_FAILED\b"),
    _form("cuda", BY_TRACE, "OutOfMemoryError", r"OutOfMemoryError: "),
    _form("worker-died", BY_TRACE, "worker died", r"worker died or was killed while exec", is_evidence=False),
    _form("worker-died", BY_TRACE, "SYSTEM_ERROR", r"Worker exit type: SYSTEM_ERROR", is_evidence=False),
    _form("killed", BY_TRACE, "SIGKILL", r"[Ss]ignal 9 ?(?:\(SIGKILL\)|: SIGKILL)", is_evidence=False),
)  # fmt: skip
#: Messages about memory that report no failure.
_HARMLESS = re.compile(r"may not be an issue|\(may retry\)")
#: Ray's line before the traceback of a task that ran out of memory.
TASK_ERROR = "RayTaskError(OutOfMemoryError)"
#: The last line of a Python traceback.
_RAISED = re.compile(r"\b[\w.]*(?:Error|Exception)\b: ")
#: Maximum length of a kept message, in characters.
_KEPT = 300

_SIZE = r"(?P<{}>\d{{1,12}}(?:\.\d{{1,6}})?) ?(?P<{}_unit>bytes|[KMGT]iB)"
_UNITS = {"bytes": 1, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30, "TiB": 2**40}


def _sized(name: str, pattern: str) -> tuple[str, re.Pattern[str]]:
    return name, re.compile(pattern.replace("#", _SIZE.format(name, name)))


_FIGURES = (
    _sized("tried", r"Tried to allocate #"),
    _sized("capacity", r"total capac(?:i)?ty of #"),
    _sized("capacity", r"; # total capac"),
    _sized("free", r"of which # is free"),
    _sized("free", r"; # free;"),
    _sized("in_use", r"this process has # memory in use"),
    _sized("allocated", r"allocated memory # is allocated by PyTorch"),
    _sized("allocated", r"; # already allocated"),
    _sized("reserved_unallocated", r"and # is reserved by PyTorch but unallocated"),
    _sized("reserved", r"; # reserved in total by PyTorch"),
    # an engine's start: the memory required for the cache or by the utilization, and the memory available
    _sized("tried", r"\(# KV cache is needed"),
    _sized("free", r"available KV cache memory \(#\)"),
    _sized("tried", r"desired GPU memory utilization \([\d.]+, #\)"),
)
_OTHER = re.compile(r"[Pp]rocess \d+ has " + _SIZE.format("size", "size") + " memory in use")
_FREE_AT_START = re.compile(r"Free memory on device.{0,20}? \(([\d.]{1,12})/([\d.]{1,12}) GiB\) on startup")
#: Message of Ray's monitor about a node; "used" and "limit" since Ray 2.56. Its GB are GiB.
_NODE = re.compile(r"Memory on the node .*?\bwas ([\d.]{1,12})GB (?:used )?/ ?([\d.]{1,12})GB")


def form_of(text: str) -> Form | None:
    """Return the form of a line's message; None if it is not an out-of-memory message.

    >>> form_of("torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has").name
    'cuda'
    >>> form_of("Lower gpu_memory_utilization to avoid running out of memory")
    """
    for form in FORMS:
        if form.word in text and form.pattern.search(text):
            return None if _HARMLESS.search(text) else form
    return None


def is_raised(text: str) -> bool:
    """Return whether Python prints the message at the end of a traceback."""
    return bool(_RAISED.search(text))


def figures_of(text: str) -> dict[str, int]:
    """Return the figures of a message in bytes, by their names in ``Failure``.

    >>> figures_of("Tried to allocate 2.00 GiB. A total capacity of 79.00 GiB of which 1.50 GiB is free")
    {'tried': 2147483648, 'capacity': 84825604096, 'free': 1610612736}
    """
    found = dict(_plain_figures(text))
    if match := _FREE_AT_START.search(text):
        found["free"], found["capacity"] = (round(float(size) * 2**30) for size in match.groups())
    if match := _NODE.search(text):
        used, total = (round(float(size) * 2**30) for size in match.groups())
        found.update(in_use=used, capacity=total, free=max(0, total - used))
    if "reserved" in found:
        found["reserved_unallocated"] = max(0, found.pop("reserved") - found.get("allocated", 0))
    others = [_bytes(match["size"], match["size_unit"]) for match in _OTHER.finditer(text)]
    if others and "in_use" not in found:
        # If PyTorch cannot identify its own process, it is the one that uses at least the reserved memory.
        held = found.get("allocated", 0) + found.get("reserved_unallocated", 0)
        own = [size for size in others if size >= held]
        if len(others) == 1 or (held and len(own) == 1):
            found["in_use"] = own[0] if own else others[0]
            others.remove(found["in_use"])
        else:
            others = []
    if others:
        found["others"] = sum(others)
    return found


def shortened(text: str) -> str:
    """Return the message of a line, cut to a limited length."""
    return text.strip()[:_KEPT]


def _plain_figures(text: str) -> Iterator[tuple[str, int]]:
    for name, pattern in _FIGURES:
        if match := pattern.search(text):
            yield name, _bytes(match[name], match[f"{name}_unit"])


def _bytes(number: str, unit: str) -> int:
    return round(float(number) * _UNITS.get(unit, 2**30))
