"""The base class of all directives: it reads options, reports problems, and builds tables and charts."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any, ClassVar

from docutils import nodes
from sphinx import addnodes
from sphinx.util.docutils import SphinxDirective

from ...diagnostics import Diagnostic, NoAnswerError, did_you_mean, printable
from ...views.drawing import CHART_CLASS, verl_chart
from ...views.table import empty_table, verl_marks
from ..domain import VerlDomain
from ..ids import free_id
from ..logs import log_at
from .options import AnyOption, Option

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from ...estimator.context import EstimatorContext
    from ...views.drawing import Drawing

#: Options of every directive that makes a table.
ABOUT_TABLE = (
    Option(
        "caption",
        "Caption of the table, instead of the default one.",
        "text",
        about_table=True,
    ),
    Option("name", "Label for links from other pages.", "label", about_table=True),
    Option("class", "Additional CSS classes of the table.", "names, separated by spaces", about_table=True),
)

NOT_USED = " has errors; the invalid parts are not used here. See the build log."
#: Maximum length of a chart's name in its id, which each part of the chart repeats.
_LONGEST_NAME = 40


class VerlDirective(SphinxDirective):
    """A directive that reports all its problems at its own line, and never stops a build.

    A class that sets ``directive`` is registered under this name.

    Attributes:
        given: the text of each valid option that is set.
        values: the value of each option; the default if it is unset or invalid.
        problems: the problems of the directive.
    """

    directive: ClassVar[str]
    #: The options of a directive with one form.
    takes: ClassVar[tuple[Option, ...]] = ()
    #: The hint about an argument, for a directive without one.
    instead_of_argument: ClassVar[str] = ""

    has_content = True  # so that text can be refused
    optional_arguments = 1
    final_argument_whitespace = True
    option_spec: ClassVar[AnyOption] = AnyOption()

    given: dict[str, str]
    values: dict[str, Any]
    problems: list[Diagnostic]

    def run(self) -> list[nodes.Node]:
        """Return the content, or a box for each problem."""
        self.given, self.problems = {}, []
        self.domain.use(*self.reads)
        known = {option.name: option for option in self.forms()[self.form]}
        self.values = {name: option.value for name, option in known.items()}
        for name, text in self.options.items():
            with self.noted():
                self._take(name, str(text or ""), known)
        with self.noted():
            self.check_text()
        for name in list(self.given):
            with self.noted(name):
                self.values[name] = known[name].read(self.given[name])
        self._check_needed(known.values())
        content: list[nodes.Node] = []
        with self.noted():
            content = self.show()
        if self.problems:
            content = [self.box(nodes.Text(f"{self.name}: {problem.text}")) for problem in self.problems]
        for problem in self.problems:
            self.log(problem)
        self._locate(content)
        wrong = (item for part in self.reads for item in self.data.diagnostics_of(part) if item.is_error)
        files = sorted({item.place.path for item in wrong})
        return [
            *(self.box(nodes.literal("", printable(name)), nodes.Text(NOT_USED)) for name in files),
            *content,
        ]

    @classmethod
    def forms(cls) -> Mapping[str, tuple[Option, ...]]:
        """Return the options of each form of the directive; most have one form without a name."""
        return {"": cls.takes}

    @property
    def form(self) -> str:
        """The name of the form in use."""
        return ""

    def _take(self, name: str, text: str, known: Mapping[str, Option]) -> None:
        if name not in known:
            hint = did_you_mean(name, known) or "the directive has no options"
            raise NoAnswerError.because("unknown option", hint, key=f":{name}")
        if bool(known[name].values) is not bool(text.strip()):
            what = f"takes no value, got {text!r}; remove it" if text else "a value is missing; write one"
            raise NoAnswerError.because(what, key=f":{name}")
        self.given[name] = text

    def _check_needed(self, known: Iterable[Option]) -> None:
        """Record an unexpected argument and missing options as problems."""
        if self.arguments and self.instead_of_argument:
            self.refuse("the directive takes no argument", self.instead_of_argument)
        for option in known:
            if option.needed and option.name not in self.given:
                self.refuse(option.needed)

    def refuse(self, message: str, remedy: str = "", option: str = "") -> None:
        """Record a problem of the directive or of one of its options."""
        with self.noted(option):
            raise NoAnswerError.because(message, remedy)

    def check_text(self) -> None:
        """Refuse text below the options.

        Raises:
            NoAnswerError: there is text.
        """
        if self.content:
            message = "the directive takes no text"
            raise NoAnswerError.because(message, "remove the text")

    def show(self) -> list[nodes.Node]:
        """Return the content; if there are ``problems`` afterwards, the content is not used.

        Raises:
            NoAnswerError: there is no content because of a problem.
        """
        raise NotImplementedError

    @property
    def reads(self) -> tuple[str, ...]:
        """The parts of the data, besides the runs, that the content depends on."""
        return ()

    @property
    def domain(self) -> VerlDomain:
        """The domain, which has the data of this build."""
        return VerlDomain.of(self.env)

    @property
    def data(self) -> EstimatorContext:
        """The records."""
        return self.domain.records

    @contextmanager
    def noted(self, option: str = "") -> Iterator[None]:
        """Record an error of the block as a problem, at an option if one is named, and continue."""
        try:
            yield
        except NoAnswerError as error:
            key = f":{option}" if option else ""
            self.problems += [
                replace(problem, place=replace(problem.place, key=problem.place.key or key))
                for problem in error.diagnostics
            ]

    def given_about_table(self) -> str:
        """Return the first option about the table that is set; empty if there is none."""
        options = (option.name for option in self.forms()[self.form] if option.about_table)
        return next((name for name in options if name in self.given), "")

    def need_table(self) -> None:
        """Refuse an option about the table if ``:show:`` leaves out the table."""
        about = self.given_about_table()
        if about and "table" not in self.values["show"]:
            remedy = "add table to :show:, or remove the option"
            self.refuse("needs the table, which :show: leaves out", remedy, about)

    def log(self, problem: Diagnostic) -> None:
        """Print a problem at its line, otherwise at the line of the directive."""
        place = (
            f"{problem.place.shown_path}:{problem.place.line}" if problem.place.path else self.get_location()
        )
        log_at(place, problem.code, f"{self.name}: {problem.text}", self.config, problem.severity)

    def _locate(self, content: Iterable[nodes.Node]) -> None:
        """Set the line of each sentence, without which Sphinx does not offer it for translation."""
        for node in content:
            self.set_source_info(node)
            for text in sentences(node):
                self.set_source_info(text)

    def box(self, *content: nodes.Node) -> nodes.error:
        """Return a box with a problem for readers of the page."""
        paragraph = nodes.paragraph("", "", *content)
        paragraph["support_smartquotes"] = False  # Sphinx compares it with `is False`
        paragraph["translatable"] = 0  # problems stay untranslated, so that they can be searched for
        self.set_source_info(paragraph)
        return nodes.error("", paragraph, classes=["verl-problem"])

    def table(
        self, inside: nodes.Element, caption: str = "", *, with_options: bool = True, table_class: str = ""
    ) -> nodes.table:
        """Return a table.

        Args:
            inside: its rows, or a placeholder for them.
            caption: its title; none if empty.
            with_options: whether the options of the directive apply to this table.
            table_class: its class; the name of the directive by default.
        """
        table = empty_table(table_class or self.directive)
        self.set_source_info(table)
        table += inside
        if with_options:
            caption = self.values["caption"] or caption
        if caption:
            set_caption(table, caption, self.state.document)
        if with_options:
            table["classes"] += (self.values["class"] or "").split()
            self.add_name(table)
        return table

    def chart(self, drawing: Drawing, name: str) -> verl_chart:
        """Return the node of a chart; its id contains ``name``."""
        stem = nodes.make_id(f"{CHART_CLASS}-{name[:_LONGEST_NAME]}")
        chart = verl_chart("", "", drawing=drawing, classes=[CHART_CLASS], format="html")
        chart["ids"] = [self.free_id(stem, chart)]
        self.set_source_info(chart)
        return chart

    def free_id(self, stem: str, node: nodes.Element) -> str:
        """Return an id for a node, see ``free_id``."""
        return free_id(stem, node, self.state.document)

    def targets(self, names: Mapping[str, str]) -> dict[str, nodes.target]:
        """Return a target for each name, with its id or a similar free one."""
        found = {name: nodes.target() for name in names}
        for name, target in found.items():
            target["ids"] = [self.free_id(names[name], target)]
        return found


#: Nodes that a translation of the text around them would lose.
_FRAGILE = (nodes.reference, addnodes.pending_xref, verl_marks)


def sentences(node: nodes.Node) -> Iterator[nodes.TextElement]:
    """Yield the texts that can be translated.

    This excludes table cells, which contain names and numbers, recorded texts, which are marked, and texts
    with a link, which a translation would lose.
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
