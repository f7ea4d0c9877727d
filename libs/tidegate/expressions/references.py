"""Tells expressions that are nothing but the name of a field from those that compute something."""

from __future__ import annotations

import re

from tidegate.contracts.values import Path
from tidegate.expressions.checking import Expression

_NAME = r'"(?:[^"]|"")+"|[^\W\d]\w*'
_NAMES = re.compile(rf"\s*(?:{_NAME})(?:\s*\.\s*(?:{_NAME}))*\s*")


def reference_of(expression: Expression) -> Path | None:
    """Return the path of the field whose values the expression has as they are; None if it computes something."""
    if len(expression.paths) != 1 or not _NAMES.fullmatch(expression.text):
        return None
    [path] = expression.paths
    named = [_unquoted(name) for name in re.findall(_NAME, expression.text)]
    return path if [name.lower() for name in named] == [name.lower() for name in path] else None


def _unquoted(name: str) -> str:
    return name[1:-1].replace('""', '"') if name.startswith('"') else name
