"""The wire format of a schema registry: a zero, the number of the schema, highest byte first, and then the value."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

from tidegate.contracts.operator import Array
from tidegate.kernels.compiled import compiled_in_place, inlined, wide

PREFIX = 5
"""The bytes before a value."""

UNREAD = -1
"""The code of a value until it is read, or refused."""
NULL, NO_PREFIX = 1, 2
REASONS = ("value: null", "value: names no schema")
"""The codes of values without a prefix, and their reasons."""


class SchemaSource(Protocol):
    """Where the schemas of values are found."""

    def schema(self, number: int) -> str | None:
        """Return the text of the schema with that number; None if there is none."""
        ...

    def imports(self, number: int) -> Mapping[str, str]:
        """Return the texts of what that schema may import or refer to, directly or not, by their names."""
        ...


@inlined
def schema_number(data: Array, start: int, length: int) -> Any:
    """Return the number of the schema that a value names, the negative of its code if it names none."""
    if length < 0:
        return wide(-NULL)
    if length < PREFIX or data[start] != 0:
        return wide(-NO_PREFIX)
    number = wide(0)
    for each in range(1, PREFIX):
        number = (number << 8) | wide(data[start + each])
    return number


@compiled_in_place
def next_schema(data: Array, start: Array, length: Array, code: Array) -> Any:
    """Return the number of the schema that the first UNREAD value names, -1 if there is none.

    Values before it that name no schema get their codes.
    """
    for row in range(len(code)):
        if code[row] == UNREAD:
            number = schema_number(data, wide(start[row]), wide(length[row]))
            if number >= 0:
                return number
            code[row] = -number
    return wide(-1)
