"""The PDF: nothing printed over its neighbour, links that land, tables that break over pages."""

from __future__ import annotations

import re
import shutil
import subprocess
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pathlib import Path


def compiled(out: Path) -> str:
    """The text of the PDF; TeX must have nothing to complain about."""
    command = ["latexmk", "-pdf", "-interaction=nonstopmode", "-halt-on-error", "projectnamenotset.tex"]
    subprocess.run(command, cwd=out, check=True, capture_output=True)
    log = (out / "projectnamenotset.log").read_text("utf-8", errors="replace")
    assert "undefined" not in log
    assert not re.search(r"^Overfull \\hbox", log, re.MULTILINE)
    subprocess.run(["pdftotext", "-layout", "projectnamenotset.pdf"], cwd=out, check=True)
    return (out / "projectnamenotset.txt").read_text("utf-8")


@pytest.mark.matrix
@pytest.mark.skipif(not shutil.which("latexmk"), reason="latexmk is not installed")
@pytest.mark.skipif(not shutil.which("pdftotext"), reason="pdftotext is not installed")
def test_pdf(own, data):
    for index in range(60):
        data.run(f"a{index}", tag="RECOMMENDED", gpus={"count": 1000 + index, "type": "H800"},
                 script={"ref": "abc", "path": "x/" + "long_name_" * 5 + ".sh"},
                 notes=[{"code": "n", "text": "A remark."}])  # fmt: skip
    text = compiled(own.page(".. verl-runs::").build("latex").out)
    assert "continues on next page" in text
    for index in range(60):
        assert f"{1000 + index}*H800" in text
    assert text.count("RECOMMENDED") == 60


@pytest.mark.matrix
@pytest.mark.skipif(not shutil.which("latexmk"), reason="latexmk is not installed")
@pytest.mark.skipif(not shutil.which("pdftotext"), reason="pdftotext is not installed")
def test_pdf_of_the_memory_page(project, root):
    text = (root / "docs" / "memory.rst").read_text("utf-8")
    (project.path / "index.rst").write_text(text.replace(":doc:`the hardware page <hardware>`", "x"), "utf-8")
    found = compiled(project.build("latex").out)
    for figure in ("58.2", "37.2", "29.2", "27.3", "18.7", "117.5", "31.9", "386.8", "72.8"):
        assert figure in found
    assert "32 × 2048 × 32 × 2560 × 4 = 21.5 GB" in found
    assert "−21.0" in found
