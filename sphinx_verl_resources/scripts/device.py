"""Commands of a script that detect the device; the script is assumed to run on GPUs."""

from __future__ import annotations

import re

_PROBE = re.compile(
    r"\b(?:torch_npu|npu-smi|nvidia-smi|rocm-smi|get_device_name|is_(?:npu|cuda)_available|torch\.cuda)\b"
)
#: The word for a GPU in the output of such a command.
_GPU = re.compile(r"""(?:\becho\s+["']?|["'])(gpu|cuda)\b(?!\.)""")
#: Commands that look for a program or a module, with its name.
_LOOKS = re.compile(
    r"(?:(?:command|which|type|hash)\b.*|python3?\b.* -c .*|)\b(npu-smi|torch_npu|(?<!\A)nvidia-smi)\b",
    re.DOTALL,
)


def succeeds_on_gpus(command: str) -> bool | None:
    """Return whether a command that looks for a device succeeds on GPUs; None for other commands.

    >>> [succeeds_on_gpus(command) for command in ("command -v npu-smi", "which nvidia-smi", "ray status")]
    [False, True, None]
    """
    looks = _LOOKS.match(command)
    return looks[1] == "nvidia-smi" if looks else None


def output_on_gpus(command: str) -> str:
    """Return the output on GPUs of a command that detects the device; empty for other commands.

    >>> output_on_gpus("python3 -c 'import torch_npu' 2>/dev/null && echo npu || echo gpu")
    'gpu'
    >>> output_on_gpus("nvidia-smi -L | wc -l")
    ''
    """
    word = _GPU.search(command) if _PROBE.search(command) else None
    return word[1] if word else "cuda" if "get_device_name" in command else ""
