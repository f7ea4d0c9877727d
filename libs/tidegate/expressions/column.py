"""Expressions written in Python: operators of a column write SQL text, with all names and texts quoted."""

from __future__ import annotations

from collections.abc import Callable
from typing import NoReturn


def _operator(sign: str) -> Callable[[Column, object], Column]:
    """Return a method that writes the column, the sign, and the other value."""
    return lambda column, other: Column(f"({column} {sign} {literal(other)})")


def _swapped(sign: str) -> Callable[[Column, object], Column]:
    """Return a method that writes the other value, the sign, and the column."""
    return lambda column, other: Column(f"({literal(other)} {sign} {column})")


class Column:
    """A value of each row, as SQL text (`str(column)`). Combine conditions with `&`, `|` and `~`."""

    __hash__ = None  # type: ignore[assignment]

    def __init__(self, text: str) -> None:
        self._text = text

    def __str__(self) -> str:
        return self._text

    def __repr__(self) -> str:
        return f"<column: {self._text}>"

    def __bool__(self) -> NoReturn:
        raise TypeError("a column has no value before the rows are there; combine conditions with & | ~")

    def __eq__(self, other: object) -> Column:  # type: ignore[override]
        return self.is_null() if other is None else Column(f"({self} = {literal(other)})")

    def __ne__(self, other: object) -> Column:  # type: ignore[override]
        return ~self.is_null() if other is None else Column(f"({self} <> {literal(other)})")

    __lt__, __le__, __gt__, __ge__ = _operator("<"), _operator("<="), _operator(">"), _operator(">=")
    __add__, __sub__, __mul__, __truediv__ = _operator("+"), _operator("-"), _operator("*"), _operator("/")
    __radd__, __rsub__, __rmul__, __rtruediv__ = _swapped("+"), _swapped("-"), _swapped("*"), _swapped("/")
    __and__, __or__, __rand__, __ror__ = _operator("AND"), _operator("OR"), _swapped("AND"), _swapped("OR")

    def __neg__(self) -> Column:
        return Column(f"(-{self})")

    def __invert__(self) -> Column:
        return Column(f"(NOT {self})")

    def is_null(self) -> Column:
        """Return whether there is no value."""
        return Column(f"({self} IS NULL)")

    def is_in(self, *values: object) -> Column:
        """Return whether the value is one of these."""
        return Column(f"({self} IN ({', '.join(map(literal, values))}))")

    def like(self, pattern: str) -> Column:
        """Return whether the text matches the pattern: `%` stands for any characters, `_` for one."""
        return Column(f"({self} LIKE {literal(pattern)})")

    def cast(self, type: str) -> Column:
        """Return the value as that type of SQL, such as `bigint` or `varchar`."""
        return Column(f"CAST({self} AS {type})")


def col(path: str) -> Column:
    """Return the column of that name; `weather.gust` is the field `gust` in the column `weather`."""
    return Column(".".join(quoted(name) for name in path.split(".")))


def literal(value: object) -> str:
    """Return the value as SQL text. Raise TypeError if it is none that expressions can contain."""
    if isinstance(value, Column):
        return str(value)
    if value is None:
        return "NULL"
    if isinstance(value, bool):
        return str(value).upper()
    if isinstance(value, int):
        return f"({value})" if value < 0 else str(value)
    if isinstance(value, float):
        return f"CAST('{value!r}' AS DOUBLE)"
    if isinstance(value, str):
        return "'" + value.replace("'", "''") + "'"
    if isinstance(value, bytes):
        return f"from_hex('{value.hex()}')"
    raise TypeError(f"an expression cannot contain a {type(value).__name__}: {value!r}")


def quoted(name: str) -> str:
    """Return the name as SQL has it."""
    return '"' + name.replace('"', '""') + '"'
