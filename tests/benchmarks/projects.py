"""Write Sphinx projects for a comparison."""

from __future__ import annotations

from typing import TYPE_CHECKING

from content import rows_of_pages

if TYPE_CHECKING:
    from pathlib import Path

    from peers import Peer


def write_project(folder: Path, peer: Peer, runs: int, per_page: int) -> Path:
    """Write a project whose pages show ``runs`` rows, made as ``peer`` does."""
    folder.mkdir(parents=True)
    (folder / "conf.py").write_text(f"extensions = []\n{peer.conf}", "utf-8")
    pages = rows_of_pages(runs, per_page)
    contents = "\n".join(f"   {page}" for page in pages)
    (folder / "index.rst").write_text(f"Index\n=====\n\n.. toctree::\n\n{contents}\n", "utf-8")
    for page, rows in pages.items():
        body = peer.write(folder, page, rows)
        (folder / f"{page}.rst").write_text(f"{page}\n{'=' * len(page)}\n\nSome text.\n\n{body}\n", "utf-8")
    return folder
