"""The wire format of a schema registry: a zero, the number of the schema, highest byte first, and then the value."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Protocol

from tidegate.contracts.operator import Array
from tidegate.kernels.compiled import compiled_in_place, wide

PREFIX = 5
"""The bytes before a value."""

NULL, NO_PREFIX = 1, 2
REASONS = ("value: null", "value: names no schema")
"""The codes of values without a prefix, and their reasons."""


class SchemaSource(Protocol):
    """Where the schemas of values are found."""

    def schema(self, number: int) -> str | None:
        """Return the text of the schema with that number; None if there is none."""
        ...


class FileSource(SchemaSource, Protocol):
    """Where schemas that are files, which may import others, are found."""

    def imports(self, number: int) -> Mapping[str, str]:
        """Return what that schema may import, directly or not, by the names in its imports."""
        ...


@compiled_in_place
def read_prefixes(data: Array, start: Array, length: Array, numbers: Array, code: Array) -> None:
    """Fill `numbers` with the number of each value's schema, or `code` with why it has none."""
    for row in range(len(start)):
        at = wide(start[row])
        if length[row] < 0:
            code[row] = NULL
        elif length[row] < PREFIX or data[at] != 0:
            code[row] = NO_PREFIX
        else:
            number = wide(0)
            for each in range(1, PREFIX):
                number = (number << 8) | wide(data[at + each])
            numbers[row] = number


def grouped(numbers: Array, rows: Array) -> Iterator[tuple[int, Array]]:
    """Yield each number that one of the rows has, and the rows that have it."""
    while len(rows):
        number = int(numbers[rows[0]])
        same = numbers[rows] == number
        yield number, rows[same]
        rows = rows[~same]
