"""HTML attributes of our tables: scopes of headers and names of regions."""

from __future__ import annotations

import pytest

PAGE = """.. verl-runs:: 7B

.. verl-fewest::
   :memory: 80
   :sizes: 7B

.. verl-memory:: 3B
   :show: table
"""


@pytest.mark.parametrize(
    ("builder", "theme"),
    [
        ("html", "sphinx_rtd_theme"),
        *(
            pytest.param(builder, theme, marks=pytest.mark.slow)
            for builder in ("html", "dirhtml", "singlehtml")
            for theme in ("alabaster", "furo", "pydata_sphinx_theme")
        ),
    ],
)
def test_every_header_cell_has_a_scope(project, builder, theme):
    soup = project.page(PAGE).build(builder, html_theme=theme).soup()
    tables = soup.select("table[class*=verl-]")
    assert len(tables) == 3
    for table in tables:
        assert {cell.get("scope") for cell in table.select("thead th")} == {"col"}
        assert {cell.get("scope") for cell in table.select("tbody th")} <= {"row"}
    assert len(soup.select("table.verl-fewest tbody th")) == 1


def test_every_table_is_a_region_with_a_name(project):
    regions = project.page(PAGE).build().soup().select("div.verl-scroll")
    assert [(region["role"], region["tabindex"]) for region in regions] == [("region", "0")] * 3
    assert [region["aria-label"] for region in regions] == [
        "Table: 7B",
        "Fewest GPUs for GRPO, 80 GB each: H100, H800, A100, A800",
        "3B: memory for 32 sequences of 2048 tokens on 8 GPUs",
    ]
    assert all(region.find("table") for region in regions)


def test_tables_of_others_stay_as_they_are(project):
    soup = project.page(f"{PAGE}\n====  ====\na     b\n====  ====\n1     2\n====  ====\n").build().soup()
    other = soup.select("table:not([class*=verl-])")
    assert len(other) == 1
    assert not other[0].select("[scope]")
    assert not other[0].find_parent(class_="verl-scroll")
