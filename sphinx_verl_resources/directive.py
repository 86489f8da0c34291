"""The base class of all directives: it reads options, reports problems, and places tables and charts."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import count
from typing import Any, ClassVar

from docutils import nodes
from sphinx.util.docutils import SphinxDirective

from .charts import Drawing
from .diagnostics import Diagnostic, NoAnswerError, did_you_mean, printable
from .domain import VerlDomain, log_at
from .nodes import empty_table
from .selection import each_once, words

NOT_USED = " has errors; the invalid parts are not used here. See the build log."


@dataclass(frozen=True)
class Option:
    """An option of a directive; the reference in the documentation uses it too.

    Attributes:
        name: its name without colons.
        help: its description, in reStructuredText.
        values: its possible values, in words; empty for a flag.
        default: its default, in words; empty if there is none.
        read: a function that turns the text into a value, or raises ``NoAnswerError``.
        value: its default.
    """

    name: str
    help: str
    values: str = ""
    default: str = ""
    read: Callable[[str], Any] = str.strip
    value: Any = None


def choices(help_text: str, allowed: Sequence[str], usual: Sequence[str] = (), name: str = "show") -> Option:
    """Return an option with distinct words, in the given order; a chart needs the table.

    Args:
        help_text: the description, which explains each word.
        allowed: the words.
        usual: the default; all of them if empty.
        name: the name of the option.
    """

    def read(text: str) -> tuple[str, ...]:
        names = each_once(words(text), str.lower, f"name at least one of {', '.join(allowed)}")
        for word in names:
            if word not in allowed:
                raise NoAnswerError.because(f"unknown value {word!r}", did_you_mean(word, allowed))
        return (*names, "table") if "chart" in names and "table" not in names else names

    values = f"any of {', '.join(f'``{word}``' for word in allowed)}, separated by commas"
    default = f"``{', '.join(usual)}``" if usual else "all"
    return Option(name, help_text, values, default, read, tuple(usual or allowed))


#: Options of every directive that makes a table.
ABOUT_TABLE = (
    Option("caption", "Caption of the table, instead of the default one.", "text"),
    Option("name", "Label for links from other pages.", "label"),
    Option("class", "Additional CSS classes of the table.", "names, separated by spaces"),
)


class VerlDirective(SphinxDirective):
    """A directive that reports all problems of its options at its own line, and never stops a build.

    Sphinx knows it as ``extension.Directive``, which accepts any option, argument and text.

    Attributes:
        texts: the text of each valid option that is set.
        values: the value of each option; the default if it is unset.
        problems: the problems of the directive.
    """

    #: The name of the directive, which is also the class of its table.
    directive: ClassVar[str]
    takes: ClassVar[tuple[Option, ...]] = ()
    #: The parts of the data, besides the runs, that the content depends on.
    reads: tuple[str, ...] = ()
    #: The hint about an argument, for a directive without one.
    instead_of_argument: ClassVar[str] = ""
    #: Whether text below the options is allowed.
    takes_text: ClassVar[bool] = False

    texts: dict[str, str]
    values: dict[str, Any]
    problems: list[Diagnostic]

    def run(self) -> list[nodes.Node]:
        """Return the content, or a box for each problem."""
        self.texts, self.problems = {}, []
        self.domain = VerlDomain.of(self.env)
        #: The records: a ``Dataset``, or the kind that higher layers have made of it.
        self.data = self.domain.records
        self._read_options()
        self.domain.use(*self.reads)
        content: list[nodes.Node] = []
        if not self.problems:
            with self.note_errors():
                content = self.show()
        if self.problems:
            content = [self.box(nodes.Text(f"{self.name}: {problem.text}")) for problem in self.problems]
        for problem in self.problems:
            self.log(problem)
        for node in content:
            self.set_source_info(node)
        wrong = (item for item in self.data.diagnostics_of(*self.reads) if item.is_error)
        files = sorted({item.place.path for item in wrong})
        boxes = [self.box(nodes.literal("", printable(name)), nodes.Text(NOT_USED)) for name in files]
        return [*boxes, *content]

    def _read_options(self) -> None:
        options = {option.name: option for option in self.takes}
        self.values = {name: option.value for name, option in options.items()}
        for name, value in self.options.items():
            text = str(value or "")
            with self.note_errors(name):
                if name not in options:
                    remedy = did_you_mean(name, options) or "the directive has no options"
                    raise NoAnswerError.because("unknown option", remedy)
                if text and not options[name].values:
                    raise NoAnswerError.because(f"takes no value, got {text!r}", "remove it")
                if options[name].values and not text.strip():
                    raise NoAnswerError.because("a value is missing", "write one")
                self.texts[name] = text
                self.values[name] = options[name].read(text)
        with self.note_errors():
            if self.content and not self.takes_text:
                raise NoAnswerError.because("the directive takes no text", "remove the text")
            if self.arguments and self.instead_of_argument:
                raise NoAnswerError.because("the directive takes no argument", self.instead_of_argument)

    def show(self) -> list[nodes.Node]:
        """Return the content; if there are ``problems`` afterwards, the content is not used.

        Raises:
            NoAnswerError: there is no content because of a problem.
        """
        raise NotImplementedError

    @contextmanager
    def note_errors(self, option: str = "") -> Iterator[None]:
        """Record an error of the block as a problem, at an option if one is named, and continue."""
        try:
            yield
        except NoAnswerError as error:
            for problem in error.diagnostics:
                key = problem.place.key or (option and f":{option}")
                self.problems.append(replace(problem, place=replace(problem.place, key=key)))

    def log(self, problem: Diagnostic) -> None:
        """Print a problem at its line, otherwise at the line of the directive."""
        where = str(problem.place).rpartition(":")[0] or self.get_location()  # Sphinx shows no columns
        log_at(where, f"{self.name}: {problem.text}", problem, self.config)

    def box(self, *content: nodes.Node) -> nodes.error:
        """Return a box with a problem for readers of the page; its text can be searched for as it is."""
        # Sphinx compares the attribute with `is False`.
        paragraph = nodes.paragraph("", "", *content, support_smartquotes=False, translatable=0)
        return nodes.error("", paragraph, classes=["verl-problem"])

    def table(
        self, inside: nodes.tgroup, caption: str = "", *, with_options: bool = True, table_class: str = ""
    ) -> nodes.table:
        """Return a table.

        Args:
            inside: its rows.
            caption: its title; none if empty.
            with_options: whether the options of the directive apply to this table.
            table_class: its class; the name of the directive by default.
        """
        table = empty_table(table_class or self.directive)
        self.set_source_info(table)
        caption = (with_options and self.values["caption"]) or caption
        if caption:  # Sphinx's permanent link to it needs an id
            table += nodes.title("", caption)
            self.reserve(nodes.make_id(f"{table['classes'][0]}-{caption}"), table)
        table += inside
        if with_options:
            table["classes"] += (self.values["class"] or "").split()
            self.add_name(table)
        return table

    def chart(self, drawing: Drawing, name: str) -> nodes.raw:
        """Return a chart; its id contains ``name``, which each part of the chart repeats."""
        return drawing.node(self.reserve(nodes.make_id(f"verl-chart-{name[:40]}"), nodes.target()))

    def reserve(self, stem: str, node: nodes.Element) -> str:
        """Give a node the id ``stem``; if it is taken on the page, ``stem-2`` and so on."""
        document = self.state.document
        names = (stem if index == 1 else f"{stem}-{index}" for index in count(1))
        unique = next(name for name in names if name not in document.ids)
        document.ids[unique] = node
        node["ids"].append(unique)
        return unique
