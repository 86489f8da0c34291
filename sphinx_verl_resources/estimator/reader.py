"""Reads settings one by one: fills in defaults, checks values, collects problems."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..diagnostics import Code, did_you_mean
from .request import error_at, warning_at

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ..diagnostics import Diagnostic

#: Larger numbers make no sense.
_MOST = 10**12


class Reader:
    """Settings with the defaults behind them; defaults are not checked.

    Attributes:
        diagnostics: what is wrong, in the order in which it was met.
    """

    def __init__(self, config: Mapping[str, Any], defaults: Mapping[str, Any]) -> None:
        self._config = config
        self._defaults = defaults
        self.diagnostics: list[Diagnostic] = []

    def error(self, key: str, message: str, remedy: str = "", code: Code = Code.wrong_value) -> None:
        """Note a problem that leaves no estimate."""
        self.diagnostics.append(error_at(key, message, remedy, code))

    def warning(self, key: str, message: str, remedy: str = "", code: Code = Code.wrong_value) -> None:
        """Note a problem that leaves an estimate."""
        self.diagnostics.append(warning_at(key, message, remedy, code))

    def is_set(self, key: str) -> bool:
        """Tell whether the user set a key to anything but null."""
        return key in self._config and self._config[key] is not None

    def first_set(self, *keys: str) -> str:
        """Return the first key that the user set, or else the last."""
        return next((key for key in keys if self.is_set(key)), keys[-1])

    def any(self, key: str) -> Any:
        """Return a value of any type."""
        return self._given(key) if key in self._config else self._defaults.get(key)

    def _given(self, key: str) -> Any:
        """Return what the user set, or the default for a reference that is not resolved."""
        value = self._config[key]
        if isinstance(value, str) and "${" in value:
            message = f"{value[:80]!r} refers to another setting; verl's default is taken"
            self.warning(key, message, "write the value itself", Code.unresolved)
            return self._defaults.get(key)
        return value

    def flag(self, key: str) -> bool:
        """Return a truth value; null counts as False."""
        if key not in self._config:
            return bool(self._defaults.get(key))
        value = self._given(key)
        if value is None or isinstance(value, bool):
            return bool(value)
        return bool(self._default_for(key, value, "true or false"))

    def whole(self, key: str, least: int = 1) -> int:
        """Return a whole number; without one verl's default, and without that ``least``."""
        value = self.optional(key, least) if key in self._config else None
        if value is None:
            value = self._defaults.get(key)
        return value if type(value) is int else least

    def optional(self, key: str, least: int = 1) -> int | None:
        """Return a whole number or None."""
        value = self.any(key)
        if value is None or (type(value) is int and least <= value <= _MOST):
            return value
        if type(value) is float and value.is_integer() and least <= value <= _MOST:
            return int(value)
        if type(value) in (int, float):
            bound = "at most 10^12" if value > 10**12 else f"at least {least}"
            self.error(key, f"expected a whole number of {bound}, got {_shown(value)}")
            value = self._defaults.get(key)
        else:
            value = self._default_for(key, value, "a whole number")
        return value if type(value) is int else None

    def number(self, key: str, low: float, high: float) -> float:
        """Return a number above ``low`` and up to ``high``."""
        value = self.any(key)
        if type(value) not in (int, float):
            value = self._default_for(key, value, "a number")
        elif not low < value <= high:
            self.error(key, f"expected a number above {low:g} and up to {high:g}, got {_shown(value)}")
            value = self._defaults.get(key)
        return float(value) if type(value) in (int, float) else high

    def choice(self, key: str, choices: tuple[str, ...]) -> str | None:
        """Return one of some words, or None."""
        value = self.any(key)
        if value is None or value in choices:
            found: str | None = value
            return found
        hint = did_you_mean(str(value), choices)
        self.error(key, f"{str(value)[:80]!r} is not a value of it", hint, Code.unknown_value)
        default: str | None = self._defaults.get(key)
        return default

    def _default_for(self, key: str, value: Any, expected: str) -> Any:
        if value is not None:
            self.error(key, f"expected {expected}, got {_shown(value)}", code=Code.wrong_type)
        return self._defaults.get(key)


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 80 else f"{text[:77]}…"
