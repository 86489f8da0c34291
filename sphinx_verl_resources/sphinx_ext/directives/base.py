"""What all directives share: options read with all their problems, boxes for these, tables with captions."""

from __future__ import annotations

from collections import ChainMap
from itertools import chain, count
from typing import TYPE_CHECKING, ClassVar

from docutils import nodes
from sphinx import addnodes
from sphinx.util.docutils import SphinxDirective

from ...views.drawing import CHART_CLASS, verl_chart
from ...views.table import empty_table, verl_marks
from ..domain import VerlDomain
from ..logs import log_at
from ..queries import Extension
from .options import AnyOption, Option, OptionError, Problems, usable

if TYPE_CHECKING:
    from collections.abc import Container, Iterable, Iterator, Mapping

    from ...views.drawing import Drawing

#: Options of every directive that makes a table.
ABOUT_TABLE = (
    Option("caption", "The caption of the table, instead of one that says what it shows.", "text"),
    Option("name", "A label, so that other pages can link the table.", "label"),
    Option("class", "Further classes of the table.", "names, separated by spaces"),
)
TABLE_OPTIONS = tuple(option.name for option in ABOUT_TABLE)


#: Characters of what a drawing is of in its id, which each of its parts repeats.
_LONGEST_NAME = 40


class VerlDirective(SphinxDirective):
    """A directive that says all that is wrong with it at its own line, and never stops a build."""

    has_content = True  # to say that there must be none
    optional_arguments = 1
    final_argument_whitespace = True
    option_spec: ClassVar[AnyOption] = AnyOption()

    def run(self) -> list[nodes.Node]:
        """Show what is asked for, or a box for each thing that is wrong."""
        VerlDomain.of(self.env).ask(Extension())
        problems = Problems()
        given = usable(self.options, self.option_spec, problems)
        with problems.noted():
            self.check_text()
        content: list[nodes.Node] = []
        with problems.noted():
            content = self.show(given, problems)
        if not problems:
            self._locate(content)
            return content
        for problem in problems:
            place = getattr(problem, "place", "") or self.get_location()
            log_at(place, problem.code, f"{self.name}: {problem}", self.config)
        return [self.problem(nodes.Text(f"{self.name}: {problem}")) for problem in problems]

    def _locate(self, content: Iterable[nodes.Node]) -> None:
        """Say of each sentence where it stands, without which Sphinx offers it to no translator."""
        for node in content:
            self.set_source_info(node)
            for text in sentences(node):
                self.set_source_info(text)

    def check_text(self) -> None:
        """Look at what stands below the options.

        Raises:
            OptionError: something does, and the directive has no use for it.
        """
        if self.content:
            raise OptionError("the directive takes options and an argument, and no text; remove the text")

    def show(self, given: Mapping[str, str], problems: Problems) -> list[nodes.Node]:
        """The content; what is wrong with the options is added to ``problems``.

        Raises:
            OptionError, NoAnswerError: something cannot be used, and nothing can be shown.
        """
        raise NotImplementedError

    def problem(self, *content: nodes.Node) -> nodes.error:
        """A box that no reader of the page overlooks."""
        paragraph = nodes.paragraph("", "", *content)
        paragraph["support_smartquotes"] = False  # Sphinx takes no other value for no
        paragraph["translatable"] = 0  # problems stay as they are, so that they can be searched for
        self.set_source_info(paragraph)
        return nodes.error("", paragraph, classes=["verl-problem"])

    def table(
        self, table_class: str, inside: nodes.Element, caption: str, *, with_options: bool
    ) -> nodes.table:
        """A table of ours.

        Args:
            table_class: its class.
            inside: its rows, or what will become them.
            caption: its title; none if empty.
            with_options: whether it is the one that the options of the directive are about.
        """
        table = empty_table(table_class)
        self.set_source_info(table)
        table += inside
        if with_options:
            caption = self.options.get("caption", caption)
        if caption:
            set_caption(table, caption, self.state.document)
        if with_options:
            table["classes"] += self.options.get("class", "").split()
            self.add_name(table)
        return table

    def chart(self, drawing: Drawing, name: str) -> verl_chart:
        """Return the node of a chart; ``name`` says what it is of."""
        stem = nodes.make_id(f"{CHART_CLASS}-{name[:_LONGEST_NAME]}")
        chart = verl_chart("", "", drawing=drawing, classes=[CHART_CLASS], format="html")
        chart["ids"] = [free_id(stem, chart, self.state.document)]
        self.set_source_info(chart)
        return chart


#: What a translation of the text around it would lose.
_FRAGILE = (nodes.reference, addnodes.pending_xref, verl_marks)


def sentences(node: nodes.Node) -> Iterator[nodes.TextElement]:
    """The texts in what a directive makes that a translator can be asked for.

    Not the cells of tables, which hold names and numbers; not what is recorded, which says so itself; and not
    what leads somewhere, since the link would get lost.
    """
    if isinstance(node, nodes.tbody):
        return
    if isinstance(node, (nodes.paragraph, nodes.title, nodes.term)):
        if any(isinstance(inner, _FRAGILE) for inner in node.findall()):
            node["translatable"] = 0
        if node.get("translatable", 1):
            yield node
        return
    for child in node.children:
        yield from sentences(child)


def set_caption(table: nodes.table, caption: str, document: nodes.document) -> None:
    """Give a table a title, and the id that Sphinx's permanent link to it needs."""
    table.insert(0, nodes.title("", caption))
    table["ids"].append(free_id(nodes.make_id(f"{table['classes'][0]}-{caption}"), table, document))


def free_id(stem: str, node: nodes.Element, document: nodes.document) -> str:
    """``stem``, or ``stem-2`` and so on where the page has it already; reserved for ``node``."""
    # MyST reads reStructuredText within a page as a document of its own, which knows no id of the page.
    given: dict[str, nodes.Element] = document.settings.env.temp_data.setdefault("verl_ids", {})
    found = free_name(stem, ChainMap(given, document.ids))
    given[found] = document.ids[found] = node
    return found


def free_name(stem: str, taken: Container[str]) -> str:
    """``stem``, or ``stem-2`` and so on where it is taken already."""
    names = chain([stem], (f"{stem}-{number}" for number in count(2)))
    return next(name for name in names if name not in taken)
