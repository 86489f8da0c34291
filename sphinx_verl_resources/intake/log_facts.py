"""Versions, cards and failures that lines of a log name. Only what cannot mean anything else counts."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

_RELEASE = r"v?(?P<version>\d{1,4}\.\d{1,4}(?:\.\w{1,12}){0,4})(?:\+[\w.]{1,40})?(?![\w.]*[\w-])"
_VERSIONS = (
    re.compile(rf"\b(?P<package>vLLM) API server version {_RELEASE}"),
    re.compile(rf"\bInitializing an? (?:V\d )?(?P<package>LLM) engine \({_RELEASE}\)"),
    re.compile(rf"(?:^|(?<=[\s|]))(?P<package>torch|verl|vllm|sglang)==+{_RELEASE}(?=\s|\Z)", re.IGNORECASE),
    re.compile(
        rf"(?:^|(?<=[\s|]))(?P<package>torch|pytorch|verl|vllm|sglang) version ?[:=]? ?{_RELEASE}",
        re.IGNORECASE,
    ),
    re.compile(rf"(?:^|(?<=[\s|,]))(?P<package>torch) {_RELEASE}"),
)
_PACKAGES = {"llm": "vllm", "pytorch": "torch"}
#: Words around a version that is asked for, and not there.
_ASKED = re.compile(
    r"requir|expect|recommend|install|upgrad|need|support|since|deprecat|minimum", re.IGNORECASE
)

#: A card with its maker, as drivers print it, or as vLLM puts it into the names of files.
_CARD = re.compile(
    r"\b(?:NVIDIA|AMD Instinct|Tesla|AMD)[ _](?P<name>[A-Z]+[ _]?(?:PRO )?\d{1,4}\w*(?:[ _-][\w-]+){0,5})"
)
_NEAR = re.compile(
    r"\|\s+\d+\s+$|device_name=$|(?:GPU|device|card)(?: \d+| name)?\W{1,4}$|^\W*$", re.IGNORECASE
)

_OUT_OF_MEMORY = re.compile(
    r"OutOfMemoryError: |(?:CUDA|HIP|NPU) out of memory\. Tried|CUDA error: out of memory"
    r"|No available memory for the cache blocks|KV cache is needed, which is larger than the available"
    r"|on startup is less than desired GPU memory utilization"
    r"|Not enough memory\. Please try to increase --mem-fraction"
)

#: One of them is in every line that the functions of this module find something in.
WORDS = (
    b" version", b"LLM engine (", b"torch==", b"verl==", b"vllm==", b"sglang==", b"torch ", b"NVIDIA",
    b"Instinct", b"Tesla", b"OutOfMemoryError", b"out of memory", b"No available memory",
    b"larger than the available", b"less than desired GPU", b"Not enough memory",
)  # fmt: skip


def versions_in(text: str) -> Iterator[tuple[str, str]]:
    """Packages and their versions.

    >>> list(versions_in("INFO 06-12 core.py: Initializing a V1 LLM engine (v0.8.3) with config: …"))
    [('vllm', '0.8.3')]
    >>> list(versions_in("this needs torch 2.6.0 or later"))
    []
    """
    if _ASKED.search(text):
        return
    for pattern in _VERSIONS:
        for found in pattern.finditer(text):
            package = found["package"].lower()
            yield _PACKAGES.get(package, package), found["version"]


def card_in(text: str) -> str:
    """A card that the machine has, as printed; empty if none is named.

    >>> card_in("|   0  NVIDIA H100 80GB HBM3          On  |   00000000:18:00.0 Off |")
    'H100 80GB HBM3'
    """
    found = _CARD.search(text)
    if not found or not _NEAR.search(text[max(0, found.start() - 60) : found.start()]):
        return ""
    return found["name"].replace("_", " ").removesuffix(".json").strip()


def is_out_of_memory(text: str) -> bool:
    """Whether the line says that memory was not enough."""
    return _OUT_OF_MEMORY.search(text) is not None
