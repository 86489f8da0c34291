"""The bundled analysis."""

from __future__ import annotations

import pytest

from sphinx_verl_resources.estimator.context import EstimatorContext


@pytest.fixture(scope="session")
def analysis():
    return EstimatorContext().analysis
