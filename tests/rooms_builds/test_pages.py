"""The table of pages with estimates in ``pages.yaml``: mistakes, tables, details and the form."""

from __future__ import annotations

from pathlib import Path

import pytest
from page_cases import check_case, check_group, groups_in, pages_in

TABLE = Path(__file__).with_name("pages.yaml")


@pytest.mark.parametrize("group", groups_in(TABLE))
def test_messages_about_data_and_conf(build_group, group):
    check_group(build_group(*group), group[0])


@pytest.mark.parametrize(("group", "suffix", "number"), pages_in(TABLE))
def test_page(build_group, group, suffix, number):
    check_case(build_group(group, suffix), group, suffix, number)
