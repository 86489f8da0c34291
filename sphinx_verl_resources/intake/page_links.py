"""Links of a hand-typed row: to the launch script, and to the person who reported the run."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urlsplit

from ..catalog.links import Links, is_address, is_fixed_ref, repository_place
from ..diagnostics import Code, Severity
from .page_cells import CellError

if TYPE_CHECKING:
    from .page_tables import Cell

#: What a cell gives, and what there is to say about it: code, message, hint and how bad it is.
Remark = tuple[Code, str, str, Severity]
Reading = tuple[dict[str, Any], list[Remark]]

_EMAIL = re.compile(r"<?[\w.+%-]+@[\w-]+(\.[\w-]+)+>?")
_DEFAULT_REF = "main"


def script_of(cell: Cell, ref: str | None) -> Reading:
    """The launch script that a cell links to.

    Args:
        cell: of the column Link.
        ref: the commit to pin to what is not pinned, None to leave it as it stands.

    Raises:
        CellError: it links to nothing.
    """
    if cell.broken or (not cell.links and not _is_path(cell.text)):
        said = f"the link {cell.text!r} leads nowhere" if cell.broken else f"{cell.text!r} is no link"
        hint = "link the script at its commit, or remove the text"
        if re.search(r"<[^<>]+>$", cell.text):
            hint = "end it with an underscore, as in `text <address>`_"
        raise CellError(said, hint, Code.page_link)
    if len(cell.links) > 1:
        message = "there are several links in a cell"
        raise CellError(message, "keep the one to the launch script", Code.page_link)
    address = cell.links[0] if cell.links else cell.text
    typed = _in_repository(address)
    if typed is None:
        return _elsewhere(address)
    found, path = typed
    remarks: list[Remark] = []
    if found is None or not is_fixed_ref(found):
        remarks.append(_unpinned(found, ref, address))
        found = ref or found or _DEFAULT_REF
    elif (written := Links().file(found, path)) != address:
        hint = f"the page has {address[:200]}; see that both lead to the same file"
        remarks.append((Code.page_mended, f"the link is written as {written}", hint, Severity.WARNING))
    script = {"ref": found, "path": path}
    name = path.rsplit("/", 1)[-1]
    if cell.text != name and (cell.text == path or cell.text != address):
        script["text"] = cell.text
    if cell.text != path and cell.text.removesuffix(".sh") != name.removesuffix(".sh") and "text" in script:
        message = f"the text {cell.text!r} differs from the name of the file that it links to, {name!r}"
        hint = "both are kept; look which file is meant"
        remarks.append((Code.page_link, message, hint, Severity.WARNING))
    return {"script": script}, remarks


def contributor_of(cell: Cell) -> Reading:
    """Who reported a run: the name, and a public profile; never an e-mail address.

    Raises:
        CellError: there is no name.
    """
    remarks: list[Remark] = []
    name, mails = _EMAIL.subn("", cell.text)
    if mails:
        name = " ".join(re.sub(r"\(\s*\)", "", name).split()).strip(" ,;")
    if mails or any(link.lower().startswith("mailto:") for link in cell.links):
        hint = "add a public profile to the run file if the person wants one"
        message = "an e-mail address is left out, for it would be published"
        remarks.append((Code.email_address, message, hint, Severity.WARNING))
    if not name:
        raise CellError(
            "the contributor has no name but an e-mail address", "name the person", Code.email_address
        )
    contributor = {"name": name}
    others = [link for link in cell.links if not link.lower().startswith("mailto:")]
    profiles = [link for link in others if is_address(link) and not _EMAIL.search(unquote(link))]
    if profiles:
        contributor["url"] = profiles[0]
    if len(others) > len(profiles[:1]) or cell.broken:
        message = "a link of the contributor is left out"
        hint = "a profile is one address that begins with https://"
        remarks.append((Code.page_link, message, hint, Severity.WARNING))
    return {"contributor": contributor}, remarks


def _is_path(text: str) -> bool:
    return bool(re.fullmatch(r"[\w.-]+(/[\w.-]+)+\.sh", text))


def _in_repository(address: str) -> tuple[str | None, str] | None:
    """Ref and path of an address in verl's repository; None for any other, no ref for a relative one."""
    place = repository_place(address)
    if place and place.path:
        return place.ref, place.path
    try:
        parts = urlsplit(address)
    except ValueError:
        return None
    steps = [step for step in unquote(parts.path).split("/") if step not in ("", ".")]
    while steps and steps[0] == "..":
        steps.pop(0)
    if parts.scheme or parts.netloc or len(steps) < 2:
        return None
    return None, "/".join(steps)


def _elsewhere(address: str) -> Reading:
    """What can be kept of a link to something else."""
    if not re.match(r"https?://", address, re.IGNORECASE):
        raise CellError(f"the link {address[:80]!r} is not understood", "link the script", Code.page_link)
    message = f"{address[:80]!r} is no file in verl's repository"
    hint = "it is kept as evidence; name the script under 'script' in the run file"
    evidence = {"kind": "document", "url": address}
    return {"evidence": [evidence]}, [(Code.page_link, message, hint, Severity.WARNING)]


def _unpinned(found: str | None, ref: str | None, address: str) -> Remark:
    """What becomes of a link whose target can change."""
    what = f"names the branch {found!r}" if found else f"is relative ({address[:80]!r})"
    message = f"the link {what} and not a commit"
    if ref:
        message += f"; it was pinned to {ref}"
        hint = "see that the file there is the one that was run"
    elif found:
        hint = "it is kept so; pin it, with --ref COMMIT for all such links"
    else:
        message += f"; it is taken for one to {_DEFAULT_REF!r}"
        hint = "pin it, with --ref COMMIT for all such links"
    return Code.page_link, message, hint, Severity.WARNING
