"""Device detection in launch scripts, answered as on a machine with GPUs."""

from __future__ import annotations

import re

#: Programs and functions that detect the device.
_PROBE = re.compile(
    r"\b(?:torch_npu|npu-smi|nvidia-smi|rocm-smi|get_device_name|is_(?:npu|cuda)_available|torch\.cuda)\b"
)
#: The word for a GPU in the output of such a command.
_GPU = re.compile(r"""(?:\becho\s+["']?|["'])(?P<word>gpu|cuda)\b(?!\.)""")
#: verl's own function for the device.
_OF_VERL = re.compile(r"\bget_device_name\b")


#: Commands that look for a program, with the program.
_LOOKS = re.compile(
    r"(?:(?:command|which|type|hash)\b.*|python3?\b.* -c .*)?\b(?P<found>nvidia-smi|npu-smi|torch_npu)\b",
    re.DOTALL,
)


def found_on_gpus(command: str) -> bool | None:
    """Return whether a command that detects the device succeeds on GPUs; None for other commands.

    >>> [found_on_gpus(command) for command in ("command -v npu-smi", "nvidia-smi -L", "ray status")]
    [False, True, None]
    """
    looks = _LOOKS.match(command)
    return looks["found"] == "nvidia-smi" if looks else None


def gpu_answer(command: str) -> str | None:
    """Return the output on a GPU of a command that detects the device; None for other commands.

    >>> gpu_answer("python3 -c 'import torch_npu' 2>/dev/null && echo npu || echo gpu")
    'gpu'
    >>> gpu_answer("nvidia-smi -L | wc -l") is None
    True
    """
    if not _PROBE.search(command):
        return None
    word = _GPU.search(command)
    if word:
        return word["word"]
    return "cuda" if _OF_VERL.search(command) else None
