"""Follow the commands of a shell script without running them.

Variables are tracked through assignments, branches and functions. If the script does not determine a
condition, both branches are followed; variables that differ between them become unknown.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import NamedTuple, TypeAlias

from tree_sitter import Node

from ..diagnostics import Diagnostic, Location, warning
from .conditions import Conditions, negated
from .values import Array, Cause, Unknown, Value, Word, as_array, if_known, join_values, source_of, split_key
from .words import WORDS, Expansion, TooMuchError, first_error, parse, succeeds_on_gpus, text_of

Variables: TypeAlias = dict[str, Value | None]
#: A function that returns whether an alternative is taken, and its statements.
Alternative: TypeAlias = tuple[Callable[[], bool | None], list[Node]]

_ELEMENTS = Cause("the elements of an array cannot be determined")
#: Parts of a command that are not words.
_NOT_WORDS = frozenset({"comment", "variable_assignment", "herestring_redirect"})
#: Options of ``declare`` that do not change the values of variables; ``r`` is followed.
_SUPPORTED = frozenset("-+agrxfFpt")
#: ``set`` with options that change no values.
_SET = re.compile(r"set(?: [-+][aefhmuvxCET]*(?:o [a-mo-z]\w+)?)*")
#: An option of ``read`` with its value in the same word.
_ATTACHED = re.compile(r" -[erst]*[^\serst]\S")
#: A default that an expansion assigns.
_DEFAULT = re.compile(r"\$\{\w+:?=")
_REMEDY = "close each quote, bracket, if, do and case; if bash accepts the script, simplify this line"


class Command(NamedTuple):
    """A command that a script starts.

    Attributes:
        words: its words; those of an array have their place in it.
        doubt: the condition that determines whether it starts, if any.
    """

    words: tuple[Word, ...]
    doubt: Cause | None = None


class Branch(NamedTuple):
    """The variables at the end of a branch; ``end`` is the builtin that ends it, or empty."""

    variables: Variables
    end: str = ""
    status: bool | None = None


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
        self._bodies: dict[str, Node] = {}  # of functions, by their text: the value of the variable "NAME()"
        self._calls: dict[str, Variables] = {}  # what the local variables of each function hide
        self._branches: dict[str, list[Branch]] = {}  # those that end a function or a loop, by the builtin
        self._end = ""
        self._inside: Location | None = None  # of the command eval, for the commands in its text
        self._lines: list[bytes] = []

    def follow(self, text: str) -> None:
        """Follow a script up to its first syntax error."""
        self._lines = text.encode().split(b"\n")
        place, remedy = Location(self._path), "give only the part that starts the training"
        try:
            self.expansion.spend(15 * len(text))
            root = parse(text)
            error = first_error(root)
            self._run([node for node in root.children if not error or node.end_byte < error.start_byte])
            if not error:
                return
            message, place, remedy = "the grammar of bash does not allow this", self._place(error), _REMEDY
        except TooMuchError as too_much:
            message = f"{too_much}; the rest was not read"
        except RecursionError:
            message = "the script is nested too deeply; the rest was not read"
        self.problems[place] = Diagnostic(place, "shell_syntax", message, remedy)

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
        for name in ("@", *(name for name in self.expansion.variables if name.endswith("()"))):
            self.expansion.make_unknown(name, self.expansion.lost)

    # -- statements; each method returns whether the statement succeeds, None if unknown

    def _run(self, nodes: Sequence[Node]) -> bool | None:
        """Follow statements in order; return whether the last one succeeds."""
        status: bool | None = True
        for node, after in zip(nodes, [*nodes[1:], None], strict=False):
            if self._end:
                break
            if node.is_named and node.type != "comment":
                in_background = after is not None and after.type == "&"
                status = self._branch([node]).status if in_background else self._statement(node)
        return status

    def _statement(self, node: Node) -> bool | None:
        self.expansion.spend(10)  # besides the characters that it expands to
        if node.type in {"test_command", "redirected_statement"} and _DEFAULT.search(text_of(node)):
            self._skip(node)  # not each of their expansions is followed
        method: Callable[[Node], bool | None] = getattr(self, f"_{node.type}", self._skip)
        return method(node)

    def _branch(self, nodes: Sequence[Node]) -> Branch:
        """Follow the statements of a branch, or of a shell of their own, and return the outcome."""
        before = self.expansion.variables
        self.expansion.spend(len(before))
        self.expansion.variables = dict(before)
        status = self._run(nodes)
        branch = Branch(self.expansion.variables, self._end, status)
        self.expansion.variables, self._end = before, ""
        return branch

    def _join(self, branches: list[Branch], why: Cause, before: int) -> None:
        """Go on with the variables of all branches; those that end the script are ignored.

        Args:
            branches: the branches, of which one is taken.
            why: the cause that decides between them.
            before: the number of commands before them.
        """
        for branch in branches:
            self._branches.get(branch.end, []).append(branch)
        going = [branch.variables for branch in branches if not branch.end]
        if not going:
            self._end = next((branch.end for branch in branches if branch.end != "exit"), "exit")
            going = [branch.variables for branch in branches if branch.end == self._end]
        for name in dict.fromkeys(name for variables in going for name in variables):
            values = [branch[name] if name in branch else self.expansion.get(name) for branch in going]
            words = sum(len(value.words) for value in values if isinstance(value, Array))
            self.expansion.spend(len(values) + 3 * words)
            self.expansion.variables[name] = join_values(name, values, why)
        if len(branches) > 1:
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
        without, branch = Branch(self.expansion.variables), self._branch([second])
        # The script is read for its training: it is assumed to go on.
        branches = [branch] if status is not None and branch.end != "exit" else [without, branch]
        self._join(branches, self._condition(first, tested), before)
        # An unknown chain fails after a failing '&&' part and succeeds after a succeeding '||' part.
        return branch.status if status is not None or branch.status == (not is_and) else None

    def _choose(self, alternatives: list[Alternative], otherwise: list[Node], node: Node) -> None:
        """Follow each alternative that may be taken."""
        tested, before = len(self._conditions.tested), len(self.commands)
        branches: list[Branch] = []
        for decide, body in alternatives:
            outcome = decide()
            if outcome is False:
                continue
            count = len(self._conditions.tested)
            branches.append(self._branch(body))
            del self._conditions.tested[count:]
            # If the branch exits, follow the others, too: the script is read for its training.
            if outcome and branches[-1].end != "exit":
                break
        else:
            branches.append(self._branch(otherwise))
        self._join(branches, self._condition(node, tested), before)

    def _if_statement(self, node: Node) -> None:
        alternatives: list[Alternative] = []
        otherwise: list[Node] = []
        for clause in [node, *node.named_children]:
            if clause == node or clause.type == "elif_clause":
                then = [child.type for child in clause.children].index("then")
                body = [c for c in clause.children[then:] if c.type not in {"elif_clause", "else_clause"}]
                alternatives.append((partial(self._run, clause.children[:then]), body))
            elif clause.type == "else_clause":
                otherwise = clause.children
        self._choose(alternatives, otherwise, node)

    def _case_statement(self, node: Node) -> None:
        value = node.child_by_field_name("value")
        subject = self.expansion.text(value) if value else ("",)
        self._note_devices("the device", node)
        alternatives: list[Alternative] = []
        for item in (child for child in node.named_children if child.type == "case_item"):
            patterns = item.children_by_field_name("value")
            if item.child_by_field_name("fallthrough"):
                self._skip(item)
            decide = partial(self._conditions.fits, subject, patterns)
            alternatives.append((decide, [child for child in item.children if child not in patterns]))
        self._choose(alternatives, [], node)

    def _loop(self, node: Node) -> None:
        """Follow a loop, which runs any number of times: variables that it changes are unknown inside it."""
        place = self._place(node)
        why = Cause(f"the loop in line {place.line} sets it", place=place)
        variable = node.child_by_field_name("variable")
        header = text_of(node).partition("))")[0] if node.type == "c_style_for_statement" else ""
        names = {text_of(variable)} if variable else self.expansion.make_changed_unknown(header)
        outside, before, count = self.expansion.variables, len(self.commands), -1
        nodes = node.children_by_field_name("body")
        if node.type == "while_statement":
            nodes = [*node.children_by_field_name("condition"), *nodes]
        ended = self._branches
        while count < len(names):  # repeat until no further variable becomes unknown
            count = len(names)
            del self.commands[before:]
            self.expansion.variables = dict(outside)
            self._branches = {**ended, "break": [], "continue": []}
            for name in names:
                value = self.expansion.get(name)
                if isinstance(value, Array):
                    self.expansion.assign(name, Array(value.words, sure=False))
                else:
                    self.expansion.make_unknown(name, why)
            branches = [self._branch(nodes), *self._branches["break"], *self._branches["continue"]]
            changes = (item for branch in branches for item in branch.variables.items())
            names |= {name for name, value in changes if (name, value) not in outside.items()}
        self._branches = ended
        branches = [branch._replace(end="return" if branch.end == "return" else "") for branch in branches]
        self._join([Branch(outside), *branches], why, len(self.commands))

    _for_statement = _while_statement = _c_style_for_statement = _loop

    def _compound_statement(self, node: Node) -> bool | None:
        """Follow ``{ … }``, or calculate ``(( … ))``."""
        if node.children[0].type != "((":
            return self._run(node.children)
        value = self.expansion.calculate(node)
        self._conditions.tested += value.cause.names if isinstance(value, Unknown) else ()
        return value != "0" if isinstance(value, str) else None

    _do_group = _compound_statement

    def _negated_command(self, node: Node) -> bool | None:
        return negated(self._run(node.named_children))

    def _subshell(self, node: Node) -> None:
        self._branch(node.children)

    def _pipeline(self, node: Node) -> None:
        for child in node.named_children:
            self._branch([child])

    def _test_command(self, node: Node) -> bool | None:
        test = [child for child in node.named_children if child.type != "comment"]
        single = node.children[0].type == "["
        return self._conditions.holds(test[0], single=single) if len(test) == 1 else None

    # -- assignments

    def _variable_assignment(self, node: Node) -> bool | None:
        """Follow assignments, which have the status of the last command in them."""
        for each in [node] if node.type == "variable_assignment" else node.named_children:
            self._assign({_name_of(each): self._assigned(each)})
        return None if re.search(r"\$\((?!\()|`", text_of(node)) else True

    _variable_assignments = _variable_assignment

    def _assign(self, values: Mapping[str, Value | None], *, local: bool = False) -> None:
        """Set variables. Local ones hide those of the same name, and may have no value."""
        for name, value in values.items():
            if local:
                [*self._calls.values()][-1].setdefault(name, self.expansion.get(name))
            if local or value is not None:
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
        self.expansion.spend(len(old.words))
        return Array((*old.words, *words.words), old.sure and words.sure)

    def _declaration_command(self, node: Node) -> bool:
        """Follow ``export``, ``readonly``, ``local``, ``declare`` or ``typeset``."""
        kind, options = node.children[0].type, ""
        values: Variables = {}  # None without one
        for child in node.named_children:
            text = self.expansion.text(child) if child.type not in {"variable_assignment", "comment"} else ()
            name, value = split_key(text)
            if child.type == "variable_assignment":
                values[_name_of(child)] = self._assigned(child)
            elif source_of(text)[:1] in {"-", "+"}:
                options += source_of(text)
            elif name.isidentifier():
                values[name] = value
            elif source_of(text).isidentifier():
                values.setdefault(source_of(text), None)
            elif text:
                self._skip(node)
        local = kind not in {"export", "readonly"} and bool(self._calls) and "g" not in options
        self._assign(values, local=local)
        if (kind != "export" and not {*options} <= _SUPPORTED) or (kind == "local" and not self._calls):
            self._skip(node)
        if kind == "readonly" or "r" in options:
            self.expansion.fixed |= values.keys()
        return True

    def _unset_command(self, node: Node) -> bool:
        if "$" in text_of(node):
            self.skipped[self._place(node)] = text_of(node)
        for name in re.findall(r"\w+", text_of(node)):
            for each in {name, f"{name}()"} & {*self.expansion.variables}:
                self.expansion.make_unknown(each, Cause(f"unset may unset ${name}"))
        return True

    def _note_devices(self, name: str, node: Node) -> None:
        """Report the assumed output of commands that detect the device."""
        for command, device in self.expansion.devices.items():
            place = self._place(node)
            message = f"{name} is assumed to be {device}"
            other = "npu" if "npu" in command else "NAME"
            is_asked = re.search(rf"\$\{{{name}\b", text_of(node))
            remedy = f"add --env {name}={other}" if is_asked else "write its value here"
            self.problems[place] = warning(place, "assumed_device", message, f"for another device, {remedy}")
        self.expansion.devices.clear()

    # -- commands

    def _redirected_statement(self, node: Node) -> bool | None:
        """Follow a statement with redirections; the grammar has the rest of the line in a here-document."""
        body, redirects = node.child_by_field_name("body"), node.children_by_field_name("redirect")
        status = self._statement(body) if body else None
        for child in (child for each in redirects for child in each.named_children):
            if hasattr(self, f"_{child.type}"):  # it may set variables, if the command succeeds
                self._branch([child])
                self._skip(child)
        return status

    def _command(self, node: Node) -> bool | None:
        """Follow a builtin or a function; collect any other command as one that the script starts."""
        parts = [*node.named_children]
        if node.parent and node.parent.type == "redirected_statement":
            parts += node.parent.children_by_field_name("redirect")
        nodes: list[Node] = []
        for part in parts:  # the grammar has words behind '> file' and '<<EOF' in it
            if part.type == "heredoc_redirect":
                nodes += part.children_by_field_name("argument")
                parts += part.children_by_field_name("redirect")
            elif part.type == "file_redirect":
                nodes += part.children_by_field_name("destination")[1:]
            elif part.type not in _NOT_WORDS:
                nodes.append(part)
        command = self.expansion.words(nodes)
        self._note_devices("the device", node)
        prefixes = [part for part in parts if part.type == "variable_assignment"]
        values = {_name_of(prefix): self._assigned(prefix) for prefix in prefixes}
        if not command.words:
            self._assign(values)
            return None
        names = [if_known(word.text) for word in command.words]
        at = next((at for at, name in enumerate(names) if name not in WORDS["prefixes"]), -1)
        name, words = names[at], command.words[at + 1 :]
        text = " ".join(source_of(word.text) for word in command.words[at:])
        is_function = self.expansion.variables.get(f"{name}()") is not None
        is_assignment = bool(at) and (is_function or "=" in (name or ""))
        match name:
            case str() if is_function and not at:
                self._call(name, Array(words, command.sure), values, node)
            case "true" | "false" | ":":
                return name != "false"
            case "exit" | "return" if name in {"exit", *self._branches}:
                self._end = name
            case "break" | "continue" if name in self._branches and not words:
                self._end = name
            case "eval" if not values:
                self._eval(words, node)
            case "set" | "shift" if text.startswith("set -- ") or (name == "shift" and self._calls):
                self.expansion.make_unknown("@", Cause("'set --' and 'shift' are not followed"))
            case "read" | "mapfile" | "readarray" | "let" if command.sure and not _ATTACHED.search(text):
                for variable in re.findall(r"[A-Za-z_]\w*", text):
                    self.expansion.make_unknown(variable, Cause(f"${variable} is set when the script runs"))
            case "source" | ".":
                self.skipped[self._place(node)] = text.partition(" ")[2]
            case _ if _SET.fullmatch(text) or (name == "trap" and {*names[at + 2 :]} <= {*WORDS["signals"]}):
                pass
            case _ if name in WORDS["may_set"] or is_assignment or text.startswith("printf -v"):
                self._skip(node)
            case _:
                self.commands.append(Command(command.words))
                status = succeeds_on_gpus(" ".join(source_of(word.text) for word in command.words))
                for variable in values if name is None else ():  # the words may vanish
                    self.expansion.make_unknown(variable, _ELEMENTS)
                if status is not None:
                    remedy = "for another device, replace the condition with its other branch"
                    place, message = self._place(node), "the device is assumed to be a GPU"
                    self.problems[place] = warning(place, "assumed_device", message, remedy)
                return status
        return None

    def _call(self, name: str, arguments: Array, prefix: Mapping[str, Value], node: Node) -> None:
        """Follow a call of a function, unless its body is unknown or calls it."""
        source = self.expansion.variables[f"{name}()"]
        body = self._bodies.get(source_of(source)) if isinstance(source, tuple) else None
        if body is None or name in self._calls:
            self._skip(node)
            return
        outside, self._branches = self._branches, {"return": []}
        self._calls[name] = {}
        self._assign({"@": arguments, **prefix}, local=True)
        self._statement(body)
        hidden = self._calls.pop(name)
        branches = [*self._branches["return"], Branch(self.expansion.variables, self._end)]
        self._branches, self._end = outside, ""
        self.expansion.spend(sum(len(branch.variables) for branch in branches))
        branches = [Branch({**each.variables, **hidden}, each.end.replace("return", "")) for each in branches]
        self._join(branches, Cause(f"the function {name} returns at several places"), len(self.commands))

    def _eval(self, words: Sequence[Word], node: Node) -> None:
        """Expand and follow the words of ``eval`` once more."""
        pieces = (piece for word in words for piece in (*word.text, " "))
        text = "".join(piece if isinstance(piece, str) else "$(:)" for piece in pieces)  # unknown, too
        root = parse(text)
        # An unknown text is often eval "$(conda shell.bash hook)".
        if first_error(root) or ("$(:)" in text and " -m " not in text):
            self.skipped[self._place(node)] = text_of(node)
            return
        outside, self._inside = self._inside, self._inside or (words[0].place if words else None)
        self._run(root.children)
        self._inside = outside

    def _function_definition(self, node: Node) -> None:
        name, (body,) = text_of(node.child_by_field_name("name")), node.children_by_field_name("body")
        if name in WORDS["may_set"]:
            self._skip(node)
        self._bodies[text_of(body)] = body
        self.expansion.assign(f"{name}()", (text_of(body),))


def _name_of(assignment: Node) -> str:
    """Return the name of the variable that an assignment sets."""
    return text_of(assignment.child_by_field_name("name")).partition("[")[0]
