"""The tables of pages in ``pages.yaml``, and with estimates in ``estimate_pages.yaml``: messages, cells, ids and links."""

from __future__ import annotations

from pathlib import Path

import pytest
from page_cases import check_case, pages_in

TABLES = map(Path(__file__).with_name, ("pages.yaml", "estimate_pages.yaml"))


@pytest.mark.parametrize(("group", "suffix", "number"), pages_in(*TABLES))
def test_page(build_group, group, suffix, number):
    check_case(build_group(group, suffix), group, suffix, number)
