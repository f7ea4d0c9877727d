"""What is computed from the records of a window. One aggregate gives a bare JSON value, several give an object.

`field`: a field of values that are JSON objects, or with dots a field within a field, such as `weather.gust`; left out:
the value itself.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from tidegate.application.options import field_option


@dataclass(frozen=True)
class Aggregate:
    """An aggregate, by its name in the configuration file, and the field that it is computed from."""

    name: str
    field: str | None = None

    @property
    def option(self) -> dict[str, str] | Literal[True]:
        """Return the aggregate's value in the configuration file."""
        return True if self.field is None else field_option(self.field)

    @property
    def named_option(self) -> dict[str, str | Literal[True]] | str:
        """Return the aggregate's value in the configuration file under a name of the user's."""
        return self.name if self.name == "count" else {self.name: True if self.field is None else self.field}


def count() -> Aggregate:
    """Return the number of records; null values count."""
    return Aggregate("count")


# A function for each aggregate, though they are alike: editors show its name, its parameter and what it computes.


def sum(field: str | None = None) -> Aggregate:
    """Return the sum of the numbers, which is exact for whole numbers of 64 bits."""
    return Aggregate("sum", field)


def min(field: str | None = None) -> Aggregate:
    """Return the smallest number."""
    return Aggregate("min", field)


def max(field: str | None = None) -> Aggregate:
    """Return the largest number."""
    return Aggregate("max", field)


def avg(field: str | None = None) -> Aggregate:
    """Return the mean of the numbers."""
    return Aggregate("avg", field)


def first(field: str | None = None) -> Aggregate:
    """Return the element that arrived first."""
    return Aggregate("first", field)


def last(field: str | None = None) -> Aggregate:
    """Return the element that arrived last."""
    return Aggregate("last", field)


def collect(field: str | None = None) -> Aggregate:
    """Return all elements, in the order in which they arrived."""
    return Aggregate("collect", field)
