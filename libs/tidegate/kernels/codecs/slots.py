"""What a kernel that reads or writes values works with: a slot per column, with a place per row."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from tidegate.contracts.operator import Array


class Slots(NamedTuple):
    """What was read, [slot, row]: a number, or where a span begins (`~position`: among the constants).

    `length` is -1 for a null, otherwise 0 for a number and the length of a span. `floats` is `number`, as float64.
    """

    number: Array
    floats: Array
    length: Array

    def clear(self, rows: Array) -> None:
        """Make every slot of these rows null. `rows`: whether it is one of them, per row."""
        self.number[:, rows] = 0
        self.length[:, rows] = -1


def slots(count: int, rows: int) -> Slots:
    """Return room for so many slots of so many rows."""
    number = np.zeros((count, rows), np.int64)
    return Slots(number, number.view(np.float64), np.full((count, rows), -1, np.int64))


def unfilled_slots(count: int, rows: int) -> Slots:
    """Return room whose content is arbitrary, for a kernel that fills every slot of a row which it reads."""
    number = np.empty((count, rows), np.int64)
    return Slots(number, number.view(np.float64), np.empty((count, rows), np.int64))
