"""Registration with Sphinx, and the handlers of its events."""

from __future__ import annotations

from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING

from .. import __version__
from ..i18n import use_language
from ..views.remarks import verl_remarks
from ..views.table import verl_marks
from .assets import add_static_path, link_downloads, link_style_sheet, write_files
from .config import register_config
from .directives import every_directive
from .directives.runs import verl_runs
from .domain import VerlDomain
from .filter_bar import AddFilterBar, load_filter, verl_controls, write_controls
from .html_pages import AccessibleTables, add_nodes
from .objects import KINDS, in_this_language
from .references import DataRole, MemoryRole, ObjectRole, replace_missing, warn_missing
from .transforms import NumberRemarks, RenderRuns, SectionsToCaptions, TypesetMinus, UnfoldDetails
from .what_if import add_form_nodes, load_script, settle_forms

if TYPE_CHECKING:
    from collections.abc import Set

    from sphinx.application import Sphinx
    from sphinx.environment import BuildEnvironment
    from sphinx.util.typing import ExtensionMetadata

#: Increment when the content of pickled doctrees changes: when one of our nodes changes its name or module,
#: or our attributes of any node change. Sphinx then reads every page again. The data of the domain has a
#: separate number, ``VerlDomain.data_version``.
ENV_VERSION = 10

#: Sphinx reads up to this many pages in one process.
MANY_PAGES = 5

#: In order of priority.
POST_TRANSFORMS = (
    NumberRemarks,
    UnfoldDetails,
    RenderRuns,
    AccessibleTables,
    AddFilterBar,
    TypesetMinus,
)


def setup_extension(app: Sphinx) -> ExtensionMetadata:
    """Register everything."""
    choose_language(app)  # for the title of the index, which Sphinx needs here
    register_config(app)
    app.add_domain(VerlDomain)
    for node in (verl_runs, verl_marks, verl_remarks):
        app.add_node(node)
    add_nodes(app)
    app.add_node(verl_controls, html=(write_controls, None))
    add_form_nodes(app)
    for name, directive in every_directive().items():
        app.add_directive(name, directive)
    app.add_index_to_domain("verl", in_this_language())
    for kind in KINDS:
        app.add_role_to_domain("verl", kind, ObjectRole())
    app.add_role_to_domain("verl", "data", DataRole())
    app.add_role_to_domain("verl", "memory", MemoryRole())
    app.add_transform(SectionsToCaptions)
    for transform in POST_TRANSFORMS:
        app.add_post_transform(transform)
    app.connect("config-inited", add_static_path)
    app.connect("builder-inited", start)
    app.connect("env-get-outdated", find_outdated)
    app.connect("env-updated", report)
    app.connect("env-updated", write_files)
    app.connect("build-finished", finish)
    app.connect("missing-reference", replace_missing)
    app.connect("warn-missing-reference", warn_missing)
    app.connect("doctree-resolved", link_downloads)
    app.connect("doctree-resolved", settle_forms)
    app.connect("html-page-context", link_style_sheet)
    app.connect("html-page-context", load_filter)
    app.connect("html-page-context", load_script)
    return {
        "version": __version__,
        "env_version": ENV_VERSION,
        "parallel_read_safe": True,
        "parallel_write_safe": True,
    }


def choose_language(app: Sphinx) -> str:
    """Choose the language; return a digest of the translations, see ``use_language``."""
    return use_language(app.config.language, [Path(app.srcdir) / name for name in app.config.locale_dirs])


def start(app: Sphinx) -> None:
    """Set the directory of conf.py and the number of processes in the domain."""
    domain = VerlDomain.of(app.env)
    domain.confdir, domain.jobs = Path(app.confdir), app.parallel


def find_outdated(
    app: Sphinx, env: BuildEnvironment, added: Set[str], changed: Set[str], removed: Set[str]
) -> list[str]:
    """Return the pages to read again after a change of the data, conf.py or the project's translations."""
    domain = VerlDomain.of(env)
    domain.forget()
    # Again, because Sphinx has only now compiled the project's own translations, see ``gettext_auto_build``.
    domain.words = choose_language(app)
    outdated = domain.outdated() - removed
    if app.parallel > 1 and len(added | changed | outdated) > MANY_PAGES:
        _ = domain.records.runs  # otherwise each of these processes would load them
    return sorted(outdated)


def report(app: Sphinx, env: BuildEnvironment) -> list[str]:
    """Log the problems of the data after all pages are read; return the pages to write again."""
    domain = VerlDomain.of(env)
    domain.report()
    file = stamp_file(app)
    if not domain.pages or (file.is_file() and file.read_text() == domain.stamp):
        return []
    file.unlink(missing_ok=True)  # until the build has finished
    return sorted(domain.pages)


def finish(app: Sphinx, error: Exception | None) -> None:
    """Leave the stamp of a finished build, without which the next one writes our pages again."""
    if error is None and app.env and VerlDomain.of(app.env).pages:
        stamp_file(app).write_text(VerlDomain.of(app.env).stamp)


def stamp_file(app: Sphinx) -> Path:
    """Return the file with the stamp of an output; builders may share the folder of doctrees."""
    output = sha256(f"{app.builder.name} {app.outdir}".encode()).hexdigest()
    return Path(app.doctreedir) / f"verl-{output[:16]}"
