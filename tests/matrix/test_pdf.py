"""The PDF: valid links, and tables that break across pages."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pathlib import Path

MISSING = [name for name in ("latexmk", "pdftotext") if not shutil.which(name)]
pytestmark = [pytest.mark.matrix, pytest.mark.skipif(bool(MISSING), reason=f"not installed: {MISSING}")]


def compiled(out: Path) -> str:
    """Return the text of the PDF; TeX must not report problems."""
    (source,) = out.glob("*.tex")
    tex = source.read_text("utf-8")
    for target in re.findall(r"\\hyperref\[\\detokenize\{([^}]*)\}\]", tex):
        assert rf"\label{{\detokenize{{{target}}}}}" in tex, target
    readable = r"-usepretex=\pdfobjcompresslevel=0"  # so that links are readable
    command = ["latexmk", "-pdf", readable, "-interaction=nonstopmode", "-halt-on-error", source.name]
    subprocess.run(command, cwd=out, check=True, capture_output=True)
    log = source.with_suffix(".log").read_text("utf-8", errors="replace")
    # The last three are messages of pdfTeX and LaTeX about broken or ambiguous links.
    for complaint in ("undefined", "does not exist", "already used", "multiply defined"):
        assert complaint not in log
    _check_links(source.with_suffix(".pdf"))
    subprocess.run(["pdftotext", "-layout", source.with_suffix(".pdf")], cwd=out, check=True)
    return source.with_suffix(".txt").read_text("utf-8")


def _check_links(pdf: Path) -> None:
    """Check that the target of each internal link is in the PDF."""
    listed = subprocess.run(["pdfinfo", "-dests", pdf], check=True, capture_output=True, text=True).stdout
    places = set(re.findall(r'"(.*)"$', listed, re.MULTILINE))
    links = {
        name.decode() for name in re.findall(rb"/S/GoTo/D\(([^)]*)\)", pdf.read_bytes().replace(b" ", b""))
    }
    assert links
    assert links <= places


def test_pdf(own, data):
    for index in range(60):
        data.run(f"a{index}", tag="RECOMMENDED", gpus={"count": 1000 + index, "type": "H800"},
                 script={"ref": "abc", "path": "x/" + "long_name_" * 5 + ".sh"},
                 notes=[{"code": "n", "text": "A remark."}])  # fmt: skip
    own.page(".. verl-runs::\n\n:verl:run:`a1`, :verl:size:`7B`\n\n.. verl-requirements:: 8B\n")
    out = own.build("latex").out
    text = compiled(out)
    assert "continues on next page" in text
    for index in range(60):
        assert f"{1000 + index}*H800" in text
    assert text.count("RECOMMENDED") == 60
    # A word may take the margin of its cell, which has 6 points; beyond it, the next cell cuts the word.
    (log,) = out.glob("*.log")
    overfull = re.findall(r"Overfull .hbox .([0-9.]+)pt", log.read_text("utf-8", "replace"))
    assert max(map(float, overfull), default=0) < 6


def test_pdf_of_the_memory_pages(project, root):
    shutil.copy(root / "docs/original-figures.csv", project.path)
    pages = [(root / "docs" / f"{name}.rst").read_text("utf-8") for name in ("memory", "original-figures")]
    (project.path / "index.rst").write_text(re.sub(":doc:`[^`]*`", "x", "\n".join(pages)), "utf-8")
    result = compiled(project.build("latex").out)
    for figure in ("58.2", "37.2", "29.2", "27.3", "18.7", "117.5", "31.9", "386.8", "72.8"):
        assert figure in result
    assert "32 × 2048 × 32 × 2560 × 2 × 2 = 21.5 GB" in result
    assert "−21.0" in result


def test_pdf_of_the_documentation(root, tmp_path):
    options = ["-j", "auto", "-q", "-n", "-W", "-b", "latex", "-d", tmp_path / "doctrees"]
    command = [sys.executable, "-m", "sphinx", *options]
    subprocess.run([*command, root / "docs", tmp_path / "latex"], check=True)
    text = compiled(tmp_path / "latex")
    assert "continues on next page" in text
    assert "Qwen2.5-72B" in text
