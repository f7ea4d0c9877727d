"""What a batch did to the slots of a state, and which of the slots that it touched have a changelog row.

A state lists each slot that a batch touches once, before the first change. Where records are stored as they are read,
a slot has a *status*. In a buffer, which copies the records that stay only at the end of the batch, a slot is told
apart by what it has: it is held or not, and it has a stored record from before the batch or not.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tidegate.contracts.operator import Array
from tidegate.kernels import time_buffer
from tidegate.kernels.compiled import compiled_in_place, inlined, wide
from tidegate.kernels.payloads import Payloads
from tidegate.kernels.time_buffer import TimeBuffer

FREE, STORED, OPENED, CHANGED, REMOVED, OPENED_AND_REMOVED = range(6)
"""The status of a slot. FREE: not in use. STORED: in use since before the batch, and unchanged. The others say what
the batch did. A removed slot is a ghost: it keeps its record until the batch's tables are built."""


@inlined
def change(status: Array, slot: int) -> bool:
    """Note that the slot changes; return True if it has to be listed: this is its first change in the batch."""
    if status[slot] != STORED:
        return False
    status[slot] = CHANGED
    return True


@inlined
def remove(status: Array, slot: int) -> bool:
    """Note that the slot is removed; return True if it has to be listed: the batch had not changed it before."""
    before = status[slot]
    status[slot] = OPENED_AND_REMOVED if before == OPENED else REMOVED
    return bool(before == STORED)


@inlined
def is_ghost(status: Array, slot: int) -> bool:
    """Return True if the batch removed the slot, so that it is to be freed at its end."""
    return bool(status[slot] == REMOVED or status[slot] == OPENED_AND_REMOVED)


def net_changes(status: Array, touched: Array) -> Array:
    """Return the indexes, among the touched slots, of those with a changelog row: int32, ascending.

    A removed slot gets a `delete`, any other a `put`. A slot that was opened and removed in the batch gets none.
    """
    changed = np.empty(len(touched), np.int32)
    return changed[: _list_changes(status, touched, changed)]


@compiled_in_place
def _list_changes(status: Array, touched: Array, changed: Array) -> Any:
    count = 0
    for at in range(len(touched)):
        if status[wide(touched[at])] != OPENED_AND_REMOVED:
            changed[count] = at
            count += 1
    return count


def net_buffer_changes(time: TimeBuffer, payloads: Payloads, touched: Array) -> Array:
    """Return the indexes, among the touched slots of a buffer, of those with a changelog row: int32, ascending.

    A slot that is held gets a `put`, one that was stored before the batch and is no longer held a `delete`.
    """
    changed = np.empty(len(touched), np.int32)
    return changed[: _list_buffer_changes(time, payloads, touched, changed)]


@compiled_in_place
def _list_buffer_changes(time: TimeBuffer, payloads: Payloads, touched: Array, changed: Array) -> Any:
    count = 0
    for at in range(len(touched)):
        slot = wide(touched[at])
        if time_buffer.is_held(time, slot) or payloads.block[slot] != 0:
            changed[count] = at
            count += 1
    return count
