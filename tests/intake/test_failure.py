"""What a log tells about the end of a run that ran out of memory."""

from __future__ import annotations

from sphinx_verl_resources.intake.log import read_log

T1 = (
    "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.50 GiB. GPU 0 has a total capacity of 79.00 GiB "
    "of which 1.50 GiB is free. Including non-PyTorch memory, this process has 60.00 GiB memory in use. Process 12 "
    "has 17.50 GiB memory in use. Of the allocated memory 50.00 GiB is allocated by PyTorch, and 8.00 GiB is reserved "
    "by PyTorch but unallocated."
)
GIB = 2**30


def failure(*lines):
    return read_log(["\n".join(lines).encode()], "run.log").failure


def test_figures():
    found = failure(T1)
    assert (found.phase, found.how, found.form, found.place.line) == ("unknown", "", "cuda", 1)
    sizes = (found.tried, found.in_use, found.others, found.allocated, found.reserved_unallocated, found.free)
    assert sizes == (2.5 * GIB, 60 * GIB, 17.5 * GIB, 50 * GIB, 8 * GIB, 1.5 * GIB)
    assert found.capacity == 79 * GIB
