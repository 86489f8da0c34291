"""The shell to compare the reader of scripts with."""

from __future__ import annotations

import shutil

import pytest


@pytest.fixture(scope="session")
def bash():
    found = shutil.which("bash")
    if not found:
        pytest.skip("bash is not installed, so that nothing is compared with it")
    return found
