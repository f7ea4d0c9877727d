"""Turn pydantic's validation errors into problems in plain words, each with its value and a remedy."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from pydantic import ValidationError

from tidegate.contracts.errors import InvalidValue, Problem

_MAPPING = ("not a mapping of options", "write {{OPTION: VALUE}}, as `tidegate validate --schema` describes it")
_LIST = ("not a list", "write [FIRST, SECOND]")
_TEXT = ("not text", "write text, in quotes")
_WHOLE = ("not a whole number", "write a whole number, such as 100")
_EMPTY = ("empty", "write at least one entry, or leave it out")
_NUMBER = ("not a number", "write a number, such as 1.5")
_BOOLEAN = ("neither true nor false", "write true or false")
_WORDS = {
    "missing": ("required, but missing", "add it"),
    "extra_forbidden": ("unknown key", "remove it, or compare its spelling with `tidegate validate --schema`"),
    "literal_error": ("not a value of this option", "write {expected}"),
    "greater_than": ("too small", "write more than {gt}"),
    "greater_than_equal": ("too small", "write {ge} or more"),
    "less_than_equal": ("too large", "write {le} or less"),
    "string_type": _TEXT,
    "path_type": _TEXT,
    "int_type": _WHOLE,
    "int_parsing": _WHOLE,
    "int_from_float": _WHOLE,
    "float_type": _NUMBER,
    "float_parsing": _NUMBER,
    "finite_number": ("not a finite number", _NUMBER[1]),
    "string_pattern_mismatch": ("empty, or it has spaces", "write it without spaces, or leave it out"),
    "bool_type": _BOOLEAN,
    "bool_parsing": _BOOLEAN,
    "dict_type": _MAPPING,
    "model_type": _MAPPING,
    "tuple_type": _LIST,
    "list_type": _LIST,
    "too_short": _EMPTY,
    "string_too_short": _EMPTY,
}
"""The cause and the remedy of each type of error that pydantic itself raises."""
_OTHER = ("not a valid value", "compare it with `tidegate validate --schema`")


def problems_of(error: ValidationError, where: str, secrets: Collection[str]) -> list[Problem]:
    """Return a problem for each error. `where`: place of the configuration; `secrets`: fields with hidden values."""
    return [_problem(found, where, secrets) for found in error.errors()]


def _problem(found: Any, where: str, secrets: Collection[str]) -> Problem:
    """Return the problem that one error describes.

    For a missing or unknown key, no value is shown: it would be everything around the key, or a misspelt secret.
    """
    cause, remedy = _words(found)
    value = found.get("input")
    if found["loc"] and found["loc"][0] in secrets:
        value = "(hidden)"
    if found["type"] in ("missing", "extra_forbidden"):
        value = None
    place = ".".join(str(part) for part in ([where] if where else []) + list(found["loc"]))
    return Problem(where=place or "file", value=value, cause=cause, remedy=remedy)


def _words(found: Any) -> tuple[str, str]:
    """Return the cause and the remedy: those that a validator of this project has raised, or those of the type."""
    context = found.get("ctx", {})
    raised = context.get("error")
    if isinstance(raised, InvalidValue):
        return raised.cause, raised.remedy
    cause, remedy = _WORDS.get(found["type"], _OTHER)
    return cause, remedy.format_map({name: _as_written(value) for name, value in context.items()})


def _as_written(value: object) -> str:
    """Return the value as a configuration has it: text without quotes, and `true`."""
    return str(value).replace("'", "").replace("True", "true")
