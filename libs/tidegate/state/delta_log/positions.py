"""Positions of rows in an operator log."""

from __future__ import annotations

from typing import NamedTuple

from tidegate.contracts.errors import UserError


class Position(NamedTuple):
    """A row's place in its log, among the rows of its kind: a later row is larger."""

    batch: int
    partition: int
    seq: int

    @classmethod
    def of(cls, text: str) -> Position:
        """Return the position that `str` has written. Raise UserError for any other text."""
        try:
            batch, partition, seq = map(int, text.split("."))
            return cls(batch, partition, seq)
        except ValueError:
            raise UserError("no position in a log", value=text[:100], remedy="follow the links of the page") from None

    def __str__(self) -> str:
        return ".".join(map(str, self))
