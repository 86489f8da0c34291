"""Tests in brackets and patterns of ``case``, as far as the script determines them."""

from __future__ import annotations

import operator
from collections.abc import Iterable

from tree_sitter import Node

from .values import Text, cause_of, if_known, names_in, source_of
from .words import Expansion, is_empty, read_number, text_of

_COMPARISONS = {f"-{name}": getattr(operator, name) for name in ("eq", "ne", "lt", "le", "gt", "ge")}


class Conditions:
    """The evaluation of conditions.

    Attributes:
        tested: the environment variables that decided conditions so far whose outcome is unknown.
    """

    def __init__(self, expansion: Expansion) -> None:
        self.tested: list[str] = []
        self._expansion = expansion

    def holds(self, node: Node, *, single: bool) -> bool | None:
        """Return whether a test succeeds; None if that depends on more than the script.

        Tests of files, regular expressions, ``-a`` and ``-o`` are not evaluated.

        Args:
            node: the test, without its brackets.
            single: whether the brackets are single, so that bash splits the test's words.
        """
        sign = text_of(node.child_by_field_name("operator"))
        operands = [child for child in node.named_children if child.type != "test_operator"]
        match node.type:
            case "parenthesized_expression":
                return self.holds(operands[0], single=single)
            case "unary_expression" if sign == "!":
                return negated(self.holds(operands[0], single=single))
            case "binary_expression" if sign in {"&&", "||"}:
                one, other = (self.holds(operand, single=single) for operand in operands)
                if (sign == "||") in {one, other}:
                    return sign == "||"
                return None if None in {one, other} else sign == "&&"
            case "unary_expression" | "binary_expression":
                if any(operand.type.endswith("_expression") for operand in operands):
                    return None  # -a, -o, and '=' beside '&&', which the grammar nests wrongly
            case _:
                sign, operands = "", [node]
        texts = [self._expansion.text(operand) for operand in operands]
        outcome = self._outcome(sign, operands, texts, single=single)
        self.tested += names_in(texts) if outcome is None else ()
        return outcome

    def fits(self, text: Text, patterns: Iterable[Node]) -> bool | None:
        """Return whether a text matches one of several patterns; None if that is unknown."""
        outcome: bool | None = False
        for regex in map(self._expansion.pattern, patterns):
            if regex and (regex.pattern == ".*" or (not cause_of(text) and regex.fullmatch(source_of(text)))):
                return True
            if regex is None or cause_of(text):
                outcome = None
                self.tested += names_in([text])
        return outcome

    def _outcome(self, sign: str, operands: list[Node], texts: list[Text], *, single: bool) -> bool | None:
        """Return the outcome of an operator with one or two words."""
        arrays = [self._expansion.words([operand]) for operand in operands] if single else []
        if any(len(array.words) > 1 for array in arrays):
            return None
        # A variable that only the environment can set is assumed to be unset.
        empty = [(len(text) == 1 and getattr(text[0], "unset", False)) or is_empty(text) for text in texts]
        # In single brackets, a word without characters or quotes vanishes.
        vanishes = any(
            not array.words or (no and word.type.endswith("expansion"))
            for no, word, array in zip(empty, operands, arrays, strict=False)
        )
        if sign in {"", "-z", "-n"} and len(operands) == 1:
            if vanishes:
                return bool(sign)
            return empty[0] if sign == "-z" else negated(empty[0])
        if vanishes or len(operands) != 2:
            return None
        one, other = map(if_known, texts)
        if sign in {"=", "==", "!="}:
            equal = self.fits(texts[0], operands[1:])
            if single and other is not None:  # not a pattern
                equal = one == other if one is not None and not set("*?[") & set(other) else None
            return negated(equal) if sign == "!=" else equal
        if sign in _COMPARISONS and (one or "").strip() and (other or "").strip():
            numbers = read_number(one or ""), read_number(other or "")
            return None if None in numbers else bool(_COMPARISONS[sign](*numbers))
        return None


def negated(value: bool | None) -> bool | None:
    """Return the opposite of an outcome; None if unknown."""
    return None if value is None else not value
