"""Follow the commands of a shell script without running them.

Variables are tracked through assignments, branches and functions. If the script does not determine a
condition, both branches are followed; variables that differ between them become unknown.
"""

from __future__ import annotations

import re
from functools import partial
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from ..diagnostics import Diagnostic, Location, warning
from .conditions import Conditions, negated
from .values import Array, Cause, Unknown, Word, as_array, joined, known, split_key, written
from .words import Expansion, TooMuchError, first_error, output_on_gpus, parse, succeeds_on_gpus, text_of

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from tree_sitter import Node

    from .values import Value

    #: A function that returns whether a branch is taken, and the statements of the branch.
    Branch: TypeAlias = tuple[Callable[[], bool | None], list[Node]]

_ELEMENTS = Cause("the elements of an array cannot be determined")
#: Options of ``declare`` whose variables are not followed.
_UNSUPPORTED = frozenset("iluA")
#: Parts of a command that are not words.
_NOT_WORDS = frozenset({"comment", "variable_assignment", "herestring_redirect", "heredoc_redirect"})
_STATEMENTS = frozenset({"command", "list", "pipeline", "redirected_statement"})
_REMEDY = "close each quote, bracket, if, do and case; if bash accepts the script, simplify this line"


class Command(NamedTuple):
    """A command that a script starts.

    Attributes:
        words: its words; those of an array have their place in it.
        doubt: the condition that determines whether it starts, if any.
    """

    words: tuple[Word, ...]
    doubt: Cause | None = None


class Way(NamedTuple):
    """The variables at the end of a way through the script; ``end`` is the builtin that ends it, or empty."""

    variables: dict[str, Value | None]
    end: str = ""
    status: bool | None = None


class Call(NamedTuple):
    """A call of a function: the values that its local variables hide, and the ways on which it returns."""

    hidden: dict[str, Value | None]
    returns: list[Way]


class Shell:
    """A walk through the commands of a script in order.

    Attributes:
        commands: the commands that the script starts, apart from builtins.
        problems: the problems of the script, and the assumptions about it.
        skipped: commands that are not followed, but may set any variable.
        expansion: the variables.
    """

    def __init__(self, path: str, environment: Mapping[str, str]) -> None:
        self.commands: list[Command] = []
        self.problems: dict[Location, Diagnostic] = {}
        self.skipped: dict[Location, str] = {}
        self.expansion = Expansion(environment, self._place)
        self._path = path
        self._conditions = Conditions(self.expansion)
        self._functions: dict[str, Node | None] = {}
        self._calls: list[Call] = []
        self._end = ""
        self._inside: Location | None = None  # of the command eval, for the commands in its text
        self._lines: list[bytes] = []

    def follow(self, text: str) -> None:
        """Follow a script up to its first syntax error."""
        self._lines = text.encode().split(b"\n")
        message, place = "", Location(self._path)
        try:
            root = parse(text)
            error = first_error(root)
            self._run([node for node in root.children if not error or node.end_byte < error.start_byte])
            if error:
                message, place = "the grammar of bash does not allow this", self._place(error)
        except TooMuchError as too_much:
            message = f"{too_much}; the rest was not read"
        except RecursionError:
            message = "the script is nested too deeply; the rest was not read"
        if message:
            self.problems[place] = Diagnostic(place, "shell_syntax", message, _REMEDY)

    def _place(self, node: Node) -> Location:
        """Return the place of a node, with the column in characters."""
        row, column = node.start_point
        before = self._lines[row][:column].decode("utf-8", "replace")
        return self._inside or Location(self._path, row + 1, len(before) + 1)

    def _skip(self, node: Node) -> None:
        """Note a command that is not followed, after which all variables are unknown."""
        place = self._place(node)
        self.skipped[place] = " ".join(text_of(node).split())
        self.expansion.lost = Cause(f"the command in line {place.line} may set any variable", place=place)

    # -- statements; each method returns whether the statement succeeds, None if unknown

    def _run(self, nodes: Sequence[Node]) -> bool | None:
        """Follow statements in order; return whether the last one succeeds."""
        status: bool | None = True
        for node, after in zip(nodes, [*nodes[1:], None], strict=False):
            if self._end:
                break
            if node.is_named and node.type != "comment":
                in_background = after is not None and after.type == "&"
                status = self._way([node]).status if in_background else self._statement(node)
        return status

    def _statement(self, node: Node) -> bool | None:
        self.expansion.spend(10)  # besides the characters that it expands to
        method = getattr(self, f"_{node.type}", None)
        return method(node) if method else None

    def _way(self, nodes: Sequence[Node]) -> Way:
        """Follow statements on one of several ways, or in a shell of their own, and return the outcome."""
        before = self.expansion.variables
        self.expansion.variables = dict(before)
        status = self._run(nodes)
        way = Way(self.expansion.variables, self._end, status)
        self.expansion.variables, self._end = before, ""
        return way

    def _join(self, ways: list[Way], why: Cause) -> None:
        """Go on with the variables of alternative ways; those that end the script are ignored."""
        if self._calls:
            self._calls[-1].returns.extend(way for way in ways if way.end == "return")
        going = [way.variables for way in ways if not way.end]
        if not going:
            self._end = "return" if any(way.end == "return" for way in ways) else "exit"
            going = [way.variables for way in ways if way.end == self._end]
        for name in dict.fromkeys(name for variables in going for name in variables):
            values = [way[name] if name in way else self.expansion.get(name) for way in going]
            self.expansion.variables[name] = joined(name, values, why)

    def _decide(self, ways: list[Way], why: Cause, before: int) -> None:
        """Join ways; ``why`` decides between them, and their commands begin at ``before``."""
        self._join(ways, why)
        if len(ways) > 1:
            self.commands[before:] = [command._replace(doubt=why) for command in self.commands[before:]]

    def _condition(self, node: Node, tested: int) -> Cause:
        """Return a condition as a cause; ``tested`` is the number of variables tested before it."""
        names = tuple(dict.fromkeys(self._conditions.tested[tested:]))
        depends = f"depends on {', '.join(f'${name}' for name in names)}" if names else "cannot be evaluated"
        place = self._place(node)
        return Cause(f"the condition in line {place.line} {depends}", names, place)

    def _list(self, node: Node) -> bool | None:
        """Follow ``a && b`` or ``a || b``."""
        tested = len(self._conditions.tested)
        first, second = (child for child in node.named_children if child.type != "comment")
        status = self._statement(first)
        is_and = node.children[1].type == "&&"
        if self._end or (status is not None and status != is_and):
            return status
        before = len(self.commands)
        way = self._way([second])
        # The script is read for its training: it is assumed to go on.
        ways = [way] if status is not None and way.end != "exit" else [Way(self.expansion.variables), way]
        self._decide(ways, self._condition(first, tested), before)
        # An unknown chain fails after a failing '&&' part and succeeds after a succeeding '||' part.
        return way.status if status is not None or way.status == (not is_and) else None

    def _choose(self, branches: list[Branch], otherwise: list[Node], node: Node) -> None:
        """Follow each branch that may be taken; its first item is a function that returns whether it is."""
        tested, before = len(self._conditions.tested), len(self.commands)
        ways: list[Way] = []
        for decide, body in branches:
            taken = decide()
            if taken is False:
                continue
            count = len(self._conditions.tested)
            ways.append(self._way(body))
            del self._conditions.tested[count:]
            # If the branch exits, follow the others, too: the script is read for its training.
            if taken and ways[-1].end != "exit":
                break
        else:
            ways.append(self._way(otherwise))
        self._decide(ways, self._condition(node, tested), before)

    def _if_statement(self, node: Node) -> None:
        branches: list[Branch] = []
        otherwise: list[Node] = []
        for clause in [node, *node.named_children]:
            if clause == node or clause.type == "elif_clause":
                then = [child.type for child in clause.children].index("then")
                body = [c for c in clause.children[then:] if c.type not in {"elif_clause", "else_clause"}]
                branches.append((partial(self._run, clause.children[:then]), body))
            elif clause.type == "else_clause":
                otherwise = clause.children
        self._choose(branches, otherwise, node)

    def _case_statement(self, node: Node) -> None:
        value = node.child_by_field_name("value")
        subject = self.expansion.text(value) if value else ("",)
        self._note_devices("the device", node)
        branches: list[Branch] = []
        falls = False
        for item in (child for child in node.named_children if child.type == "case_item"):
            patterns = item.children_by_field_name("value")
            falls = falls or item.child_by_field_name("fallthrough") is not None
            decide = (lambda: None) if falls else partial(self._conditions.fits, subject, patterns)
            branches.append((decide, [child for child in item.children if child not in patterns]))
        self._choose(branches, [], node)

    def _loop(self, node: Node) -> None:
        """Follow a loop, which runs any number of times: variables that it changes are unknown inside it."""
        place = self._place(node)
        why = Cause(f"the loop in line {place.line} sets it", place=place)
        variable = node.child_by_field_name("variable")
        header = text_of(node).partition("))")[0] if node.type == "c_style_for_statement" else ""
        names = {text_of(variable)} if variable else self.expansion.doubt_changed(header)
        outside, before, count = self.expansion.variables, len(self.commands), -1
        nodes = [*node.children_by_field_name("condition"), *node.children_by_field_name("body")]
        while count < len(names):  # again with the variables that were known too well
            count = len(names)
            del self.commands[before:]
            self.expansion.variables = dict(outside)
            for name in names:
                value = self.expansion.get(name)
                words = value.words if isinstance(value, Array) else None
                self.expansion.assign(
                    name, (Unknown(f"${name}", why),) if words is None else Array(words, False)
                )
            way = self._way(nodes)
            names |= {name for name, value in way.variables.items() if (name, value) not in outside.items()}
        way = way._replace(end=way.end.replace("exit", ""))
        self._decide([Way(outside), way], why, len(self.commands))

    _for_statement = _while_statement = _c_style_for_statement = _loop

    def _do_group(self, node: Node) -> bool | None:
        return self._run(node.children)

    _variable_assignments = _do_group

    def _compound_statement(self, node: Node) -> bool | None:
        """Follow ``{ … }``, or calculate ``(( … ))``."""
        if node.children[0].type == "{":
            return self._run(node.children)
        value = self.expansion.calculate(node)
        self._conditions.tested += value.cause.names if isinstance(value, Unknown) else ()
        return value != "0" if isinstance(value, str) else None

    def _negated_command(self, node: Node) -> bool | None:
        return negated(self._run(node.named_children))

    def _subshell(self, node: Node) -> None:
        self._way(node.children)

    def _pipeline(self, node: Node) -> None:
        for child in node.named_children:
            self._way([child])

    def _test_command(self, node: Node) -> bool | None:
        test = [child for child in node.named_children if child.type != "comment"]
        single = node.children[0].type == "["
        return self._conditions.holds(test[0], single=single) if len(test) == 1 else None

    # -- assignments

    def _variable_assignment(self, node: Node) -> bool:
        self._assign({_name_of(node): self._assigned(node)})
        return True

    def _assign(self, values: Mapping[str, Value | None], *, local: bool = False) -> None:
        """Set variables, which hide those of the same name if they are local to a function."""
        for name, value in values.items():
            if local:
                self._calls[-1].hidden.setdefault(name, self.expansion.get(name))
            self.expansion.assign(name, value)

    def _assigned(self, node: Node) -> Value:
        """Return the value of an assignment."""
        name, value = _name_of(node), node.child_by_field_name("value")
        before = self.expansion.variables.get(name)
        items = value.named_children if value and value.type == "array" else None
        elements = "[" in text_of(node.child_by_field_name("name")) or (
            isinstance(before, Array) and items is None
        )
        if elements or any(text_of(item).startswith("[") for item in items or ()):
            return (Unknown(f"${name}", _ELEMENTS),)
        earlier = self.expansion.get(name) if any(child.type == "+=" for child in node.children) else None
        if items is None:
            text = self.expansion.text(value) if value else ("",)
            self._note_devices(name, node)
            return (*earlier, *text) if isinstance(earlier, tuple) else text
        words = self.expansion.words(item for item in items if item.type != "comment")
        old = as_array(earlier, self._place(node)) if earlier else Array()
        return Array((*old.words, *words.words), old.sure and words.sure)

    def _declaration_command(self, node: Node) -> bool:
        """Follow ``export``, ``readonly``, ``local``, ``declare`` or ``typeset``."""
        kind, options = node.children[0].type, ""
        values: dict[str, Value | None] = {}
        bare: dict[str, Value | None] = {}
        for child in node.named_children:
            text = self.expansion.text(child) if child.type not in {"variable_assignment", "comment"} else ()
            name, value = split_key(text)
            if child.type == "variable_assignment":
                values[_name_of(child)] = self._assigned(child)
            elif written(text)[:1] in {"-", "+"}:
                options += written(text)
            elif name.isidentifier():
                values[name] = value
            elif (known(text) or "").isidentifier():
                bare[written(text)] = None
            elif text:
                self._skip(node)
        if kind == "local" and not self._calls:  # an error, after which bash goes on
            return False
        local = kind not in {"export", "readonly"} and bool(self._calls) and "g" not in options
        self._assign({**bare, **values} if local else values, local=local)
        if kind != "export" and "n" in options:  # names for other variables
            self._skip(node)
        if kind == "readonly" or (kind != "export" and {*options} & {*_UNSUPPORTED, "r"}):
            self.expansion.fixed.update(bare, values)
            for name in {*bare, *values} if {*options} & _UNSUPPORTED else ():
                self.expansion.assign(name, None)
        return True

    def _unset_command(self, node: Node) -> bool:
        for child in node.named_children:
            name, bracket, _ = (known(self.expansion.text(child)) or "").partition("[")
            if text_of(node.named_children[0]) == "-f":
                self._functions[name] = None
            else:
                self.expansion.assign(name, (Unknown(f"${name}", _ELEMENTS),) if bracket else None)
        return True

    def _note_devices(self, name: str, node: Node) -> None:
        """Report the assumed output of commands that detect the device."""
        for command in self.expansion.devices:
            place = self._place(node)
            message = f"{name} is assumed to be {output_on_gpus(command)}"
            other = "npu" if "npu" in command else "NAME"
            is_asked = re.search(rf"\$\{{{name}\b", text_of(node))
            remedy = f"add --env {name}={other}" if is_asked else "write its value here"
            self.problems[place] = warning(place, "assumed_device", message, f"for another device, {remedy}")
        self.expansion.devices.clear()

    # -- commands

    def _redirected_statement(self, node: Node) -> bool | None:
        """Follow a statement with redirections."""
        body, redirects = node.child_by_field_name("body"), node.children_by_field_name("redirect")
        status = None
        if body:
            status = self._command(body, redirects) if body.type == "command" else self._statement(body)
        # The grammar has the rest of the line in a here-document.
        rest = [child for each in redirects for child in each.named_children]
        for child in (child for child in rest if child.type in _STATEMENTS):
            self._way([child])
            if child.type != "pipeline":  # it may set variables, if the command succeeds
                self._skip(child)
        return status

    def _command(self, node: Node, redirects: Sequence[Node] = ()) -> bool | None:
        """Follow a builtin or a function; collect any other command as one that the script starts."""
        nodes: list[Node] = []
        for child in (*node.named_children, *redirects):  # the grammar has words behind '> file' in it
            is_file = child.type == "file_redirect"
            nodes += child.children_by_field_name("destination")[1:] if is_file else [child]
        words = self.expansion.words(node for node in nodes if node.type not in _NOT_WORDS)
        self._note_devices("the device", node)
        texts = [word.text for word in words.words]
        name = known(texts[0]) if texts else ""
        prefixes = [child for child in node.named_children if child.type == "variable_assignment"]
        values = {_name_of(prefix): self._assigned(prefix) for prefix in prefixes}
        if name in self._functions:
            self._call(name, Array(words.words[1:], words.sure), values, node)
            return None
        match name:
            case "true" | "false" | ":":
                return name != "false"
            case "exit" | "return" if name == "exit" or self._calls:
                self._end = name
            case "eval":
                self._eval(words.words[1:], node)
            case "set" | "shift":
                if "--" in map(known, texts) or (name == "shift" and self._calls):
                    self.expansion.doubt("@", Cause("'set --' and 'shift' are not followed"))
            case "read" | "mapfile" | "readarray" | "getopts" | "let" | "printf":
                for text in texts[1:] if name != "printf" or ("-v",) in texts else ():
                    variable = (known(text) or "").partition("=")[0].rstrip("+-*/% ")
                    self.expansion.doubt(variable, Cause(f"${variable} is set when the script runs"))
            case "source" | ".":
                self.skipped[self._place(node)] = " ".join(map(written, texts[1:]))
            case "shopt" if {("nocasematch",), ("lastpipe",), ("expand_aliases",)} & set(texts):
                self._skip(node)
            case _ if texts:
                self.commands.append(Command(words.words))
                status = succeeds_on_gpus(" ".join(map(written, texts)))
                if status is not None:
                    remedy = "for another device, replace the condition with its other branch"
                    place, message = self._place(node), "the device is assumed to be a GPU"
                    self.problems[place] = warning(place, "assumed_device", message, remedy)
                return status
        return None

    def _call(self, name: str, arguments: Array, prefix: Mapping[str, Value], node: Node) -> None:
        """Follow a call of a function, unless its body is unknown."""
        body = self._functions[name]
        if body is None:
            self._skip(node)
            return
        call = Call({}, [])
        self._calls.append(call)
        self._functions[name] = None  # recursion is not followed
        self._assign({"@": arguments, **prefix}, local=True)
        self._statement(body)
        self._functions[name] = body
        self._calls.pop()
        ways = [*call.returns, Way(self.expansion.variables, self._end)]
        for number, way in enumerate(ways):
            ways[number] = Way({**way.variables, **call.hidden}, way.end.replace("return", ""))
        self._end = ""
        self._join(ways, Cause(f"the function {name} returns at several places"))

    def _eval(self, words: Sequence[Word], node: Node) -> None:
        """Expand and follow the words of ``eval`` once more."""
        text = ""
        is_known = True
        for number, piece in enumerate(piece for word in words for piece in (*word.text, " ")):
            if isinstance(piece, Unknown):
                is_known = False
                self.expansion.assign(f"_eval_{number}", (piece,))
                piece = f"${{_eval_{number}}}"
            text += piece
        root = parse(text)
        if first_error(root) or not (is_known or " -m " in text):  # often eval "$(conda shell.bash hook)"
            self.skipped[self._place(node)] = text_of(node)
            return
        outside, self._inside = self._inside, self._inside or (words[0].place if words else None)
        self._run(root.children)
        self._inside = outside

    def _function_definition(self, node: Node) -> None:
        name, body = text_of(node.child_by_field_name("name")), node.child_by_field_name("body")
        # A function with two definitions is not followed.
        self._functions[name] = body if self._functions.get(name, body) == body else None


def _name_of(assignment: Node) -> str:
    """Return the name of the variable that an assignment sets."""
    return text_of(assignment.child_by_field_name("name")).partition("[")[0]
