"""Make the branch that adopts the extension in verl's documentation: ``python tools/adopt.py CHECKOUT``.

It changes files below ``docs/`` of a checkout of verl, and commits them on a new branch. It neither builds
nor pushes. docs/adopting.rst explains the changes.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
from datetime import date, datetime
from pathlib import Path

from sphinx_verl_resources.dataset import RUNS, Dataset, bundled_directory

BRANCH = "doc-hardware-runs"
#: The day of the last update of verl's hand-typed page, and the folder of its scripts.
LAST_TYPED, SCRIPTS = date(2025, 6, 25), "examples/tuning/"
PAGE, CONF, REQUIREMENTS = "docs/perf/device_tuning.rst", "docs/conf.py", "docs/requirements-docs.txt"
FOLDER = "docs/hardware_runs"
TABLES = Path(__file__).parent.parent / "docs/examples/device_tuning.txt"
REQUIREMENT = "sphinx-verl-resources==0.1.*"
CONF_LINES = f'extensions.append("sphinx_verl_resources")\nverl_resources_data = ["{Path(FOLDER).name}"]\n'
NAMES = """\
Name the script ``run_<model>_<train-backend>.sh``, for example ``run_qwen3_8b_fsdp.sh``; verl's hook
``check-example-naming`` requires this form. Place it under the ``examples/`` directory.

"""
MESSAGE = """\
[doc] feat: build the hardware tables from one file per run

The page "Hardware Resource Needed for RL" has the same rows as before, built from
docs/hardware_runs/runs by the Sphinx extension sphinx-verl-resources. Every row and
size class has a permanent anchor; old anchors still work. To add a row, add a file.
"""


class AdoptError(Exception):
    """A reason why the branch cannot be made."""


def git(checkout: Path, *arguments: str) -> str:
    """Run git in the checkout and return its output."""
    done = subprocess.run(["git", "-C", str(checkout), *arguments], capture_output=True, text=True)
    if done.returncode:
        raise AdoptError(f"git {arguments[0]}: {done.stderr.strip() or done.stdout.strip()}")
    return done.stdout


def published_runs() -> dict[str, str]:
    """Return the files of the rows on verl's hand-typed page by name, without the line for editors."""
    runs = Dataset().runs.values()
    typed = [run for run in runs if run.added and run.added <= LAST_TYPED and run.script]
    names = [f"{run.id}.yaml" for run in typed if run.script and run.script.path.startswith(SCRIPTS)]
    folder = bundled_directory().path / RUNS
    return {name: (folder / name).read_text("utf-8").split("\n", 1)[1] for name in sorted(names)}


def appended(content: bytes, lines: str) -> bytes:
    """Return a file with further lines, with the line ends that it has."""
    end = b"\r\n" if b"\r\n" in content else b"\n"
    before = content if content.endswith(b"\n") else content + end
    return before + end + lines.encode().replace(b"\n", end)


def adopted_page(content: bytes) -> bytes:
    """Return the page with directives in place of its tables, today's date and verl's convention of names."""
    end = "\r\n" if b"\r\n" in content else "\n"
    text = content.decode().replace("\r\n", "\n")
    first = re.search(r"^[\d.]+B\n~+\n", text, re.MULTILINE)
    if not first:
        raise AdoptError(f"{PAGE}: no heading of a size class, such as 0.5B; is the page adopted already?")
    head = text[: first.start()]
    today = datetime.now().astimezone()
    head = re.sub(r"Last updated: [\d/]+", f"Last updated: {today:%m/%d/%Y}", head)
    head = re.sub(
        r"^When defining script names.*?\n\s*\n", lambda _: NAMES, head, flags=re.DOTALL | re.MULTILINE
    )
    return (head + TABLES.read_text("utf-8")).replace("\n", end).encode()


def adopt(checkout: Path, requirement: str) -> int:
    """Write and commit the changes on a new branch; return the number of rows."""
    files = {name: checkout / name for name in (PAGE, CONF, REQUIREMENTS)}
    for name, path in files.items():
        if not path.is_file():
            raise AdoptError(f"{checkout}: not a checkout of verl, it has no {name}")
    if git(checkout, "status", "--porcelain", "--", "docs").strip():
        raise AdoptError(f"{checkout}/docs has changes; commit or stash them first")
    page = adopted_page(files[PAGE].read_bytes())
    git(checkout, "switch", "--quiet", "--create", BRANCH)
    files[PAGE].write_bytes(page)
    files[CONF].write_bytes(appended(files[CONF].read_bytes(), CONF_LINES))
    lines = f"# tables of hardware runs\n{requirement}\n"
    files[REQUIREMENTS].write_bytes(appended(files[REQUIREMENTS].read_bytes(), lines))
    folder = checkout / FOLDER / RUNS
    folder.mkdir(parents=True)
    runs = published_runs()
    for name, text in runs.items():
        (folder / name).write_text(text, "utf-8", newline="\n")
    git(checkout, "add", "--", "docs")
    git(checkout, "commit", "--quiet", "--message", MESSAGE, "--", "docs")
    return len(runs)


def main() -> int:
    """Parse the arguments, make the branch and report."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("checkout", type=Path, metavar="CHECKOUT", help="git checkout of verl")
    parser.add_argument(
        "--require", default=REQUIREMENT, help=f"line of {REQUIREMENTS}; default: {REQUIREMENT}"
    )
    options = parser.parse_args()
    try:
        before = git(options.checkout, "rev-parse", "--abbrev-ref", "HEAD").strip()
        rows = adopt(options.checkout, options.require)
    except AdoptError as error:
        sys.stderr.write(f"adopt: {error}\n")
        return 2
    changed = git(options.checkout, "show", "--stat", "--format=branch %D%n%s", "HEAD")
    sys.stdout.write(f"""{changed}
For readers: the same {rows} rows in all nine columns; sections and rows with permanent anchors; a bar that
filters the rows; for each size without a run, how to add one. Contributors' links are public profiles instead
of e-mail addresses.
Build: pip install -r {REQUIREMENTS} && sphinx-build -b html docs docs/_build/html
The way back: git switch {before} && git branch -D {BRANCH}
""")
    return 0


if __name__ == "__main__":
    sys.exit(main())
