"""The bundled analysis."""

from __future__ import annotations

import pytest

from sphinx_verl_resources.cli.data import load_all


@pytest.fixture(scope="session")
def analysis():
    return load_all([])[1]
