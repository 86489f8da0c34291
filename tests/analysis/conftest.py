"""The bundled analysis."""

from __future__ import annotations

import pytest

from sphinx_verl_resources.cli.data import read_data


@pytest.fixture(scope="session")
def analysis():
    return read_data([]).analysis
