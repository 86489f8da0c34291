"""The PDF: nothing printed over its neighbour, links that land, tables that break over pages."""

from __future__ import annotations

import re
import shutil
import subprocess

import pytest


@pytest.mark.matrix
@pytest.mark.skipif(not shutil.which("latexmk"), reason="latexmk is not installed")
@pytest.mark.skipif(not shutil.which("pdftotext"), reason="pdftotext is not installed")
def test_pdf(own, data):
    for index in range(60):
        data.run(f"a{index}", tag="RECOMMENDED", gpus={"count": 1000 + index, "type": "H800"},
                 script={"ref": "abc", "path": "x/" + "long_name_" * 5 + ".sh"},
                 notes=[{"code": "n", "text": "A remark."}])  # fmt: skip
    out = own.page(".. verl-runs::").build("latex").out
    command = ["latexmk", "-pdf", "-interaction=nonstopmode", "-halt-on-error", "projectnamenotset.tex"]
    subprocess.run(command, cwd=out, check=True, capture_output=True)
    log = (out / "projectnamenotset.log").read_text("utf-8", errors="replace")
    assert "undefined" not in log
    assert not re.search(r"^Overfull \\hbox", log, re.MULTILINE)
    subprocess.run(["pdftotext", "-layout", "projectnamenotset.pdf"], cwd=out, check=True)
    text = (out / "projectnamenotset.txt").read_text("utf-8")
    assert "continues on next page" in text
    for index in range(60):
        assert f"{1000 + index}*H800" in text
    assert text.count("RECOMMENDED") == 60
