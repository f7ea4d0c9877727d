"""A buffer of slots in the order of (place, arrival): a heap in which any slot can be found.

The position of each slot in the heap is known, so any slot can be removed or moved, not only the first one. Places are
stored in heap order, so that comparisons read neighbouring places. Operators that hold records until a time hold their
records in such a buffer. A slot's position is -1 while it is not held. `arrival` is unique among the held slots, so the
order is total and does not depend on history.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from tidegate.contracts.operator import Array
from tidegate.kernels.compiled import inlined, wide

HELD, HELD_BYTES = 0, 1
NUMBERS = 2
NOT_HELD = -1

NONE = -1
"""No node."""

WAYS = 4
"""Nodes below each node. Four of them, with neighbouring places, make the heap half as high as two would."""


class TimeBuffer(NamedTuple):
    """The held slots, as a heap.

    `numbers`: how many slots are held, and their bytes. By node of the heap: `heap` (slots) and `place`. By slot: the
    others.
    """

    numbers: Array
    heap: Array
    place: Array
    position: Array
    arrival: Array
    size: Array


def held_in_order(buffer: TimeBuffer) -> Array:
    """Return the held slots by place and arrival."""
    count = buffer.numbers[HELD]
    held = buffer.heap[:count]
    return np.asarray(held[np.lexsort((buffer.arrival[held], buffer.place[:count]))])


@inlined
def is_held(buffer: TimeBuffer, slot: int) -> bool:
    """Return whether the slot is in the buffer."""
    return bool(buffer.position[slot] != NOT_HELD)


@inlined
def place_of(buffer: TimeBuffer, slot: int) -> Any:
    """Return the place of the held slot in the order."""
    return buffer.place[buffer.position[slot]]


@inlined
def push(buffer: TimeBuffer, slot: int, place: int, arrival: int, size: int) -> None:
    """Add the slot to the buffer at that place, with `size` bytes."""
    buffer.arrival[slot] = arrival
    buffer.size[slot] = size
    last = buffer.numbers[HELD]
    buffer.numbers[HELD] = last + 1
    buffer.numbers[HELD_BYTES] += size
    _rise(buffer, slot, place, last)


@inlined
def remove(buffer: TimeBuffer, slot: int) -> None:
    """Remove the slot and its bytes from the buffer."""
    node = wide(buffer.position[slot])
    end = buffer.numbers[HELD] - 1
    buffer.numbers[HELD] = end
    buffer.numbers[HELD_BYTES] -= buffer.size[slot]
    buffer.position[slot] = NOT_HELD
    if node != end:
        _settle(buffer, wide(buffer.heap[end]), buffer.place[end], node)


@inlined
def move(buffer: TimeBuffer, slot: int, place: int) -> None:
    """Move the held slot to another place; its arrival stays."""
    _settle(buffer, slot, place, wide(buffer.position[slot]))


@inlined
def resize(buffer: TimeBuffer, slot: int, size: int) -> None:
    """Set the size of the held slot in bytes."""
    buffer.numbers[HELD_BYTES] += size - buffer.size[slot]
    buffer.size[slot] = size


@inlined
def leaves_before_above(buffer: TimeBuffer, node: int) -> bool:
    """Return whether the node, which is not the top, precedes the node above it: the heap is broken there."""
    return _precedes(buffer, wide(buffer.heap[node]), buffer.place[node], _above(node))


@inlined
def next_node(node: int, descend: bool) -> Any:
    """Return the node after `node`, from the top down and left to right; 0 after the last. Needs no stack.

    Nodes that are due form a tree from the top. A walk that descends only below due nodes sees all of them, and besides
    them only nodes directly below them.
    """
    if descend:
        return WAYS * node + 1
    while node > 0 and node % WAYS == 0:
        node = _above(node)
    return node + 1 if node > 0 else 0


@inlined
def first_due(buffer: TimeBuffer, until: int) -> Any:
    """Return the first node of a walk over all nodes with a place of at most `until`; NONE if there is none.

    The walk is in no order of time. It must see a buffer that does not change.
    """
    return wide(0) if _is_due(buffer, wide(0), until) else wide(NONE)


@inlined
def next_due(buffer: TimeBuffer, node: int, until: int) -> Any:
    """Return the node after `node` in the walk that `first_due` began; NONE after the last."""
    node = next_node(node, True)
    while node > 0 and not _is_due(buffer, node, until):
        node = next_node(node, False)
    return node if node > 0 else wide(NONE)


@inlined
def _is_due(buffer: TimeBuffer, node: int, until: int) -> bool:
    return bool(node < buffer.numbers[HELD] and buffer.place[node] <= until)


@inlined
def _above(node: int) -> Any:
    return (node - 1) >> 2


@inlined
def _settle(buffer: TimeBuffer, slot: int, place: int, node: int) -> None:
    if node > 0 and _precedes(buffer, slot, place, _above(node)):
        _rise(buffer, slot, place, node)
    else:
        _sink(buffer, slot, place, node)


@inlined
def _precedes(buffer: TimeBuffer, slot: int, place: int, node: int) -> bool:
    """Return whether the slot, if it has that place, precedes the slot of the node."""
    other = buffer.place[node]
    if place == other:
        return bool(buffer.arrival[slot] < buffer.arrival[buffer.heap[node]])
    return bool(place < other)


@inlined
def _rise(buffer: TimeBuffer, slot: int, place: int, node: int) -> None:
    while node > 0:
        above = _above(node)
        if not _precedes(buffer, slot, place, above):
            break
        _put(buffer, wide(buffer.heap[above]), buffer.place[above], node)
        node = above
    _put(buffer, slot, place, node)


@inlined
def _sink(buffer: TimeBuffer, slot: int, place: int, node: int) -> None:
    count = buffer.numbers[HELD]
    while WAYS * node + 1 < count:
        below = _earliest_below(buffer, node, count)
        if _precedes(buffer, slot, place, below):
            break
        _put(buffer, wide(buffer.heap[below]), buffer.place[below], node)
        node = below
    _put(buffer, slot, place, node)


@inlined
def _earliest_below(buffer: TimeBuffer, node: int, count: int) -> Any:
    """Return the node that comes first in the order among the nodes below this one."""
    earliest = WAYS * node + 1
    place = buffer.place[earliest]
    for other in range(earliest + 1, min(earliest + WAYS, count)):
        other_place = buffer.place[other]
        if other_place == place:
            if buffer.arrival[buffer.heap[other]] < buffer.arrival[buffer.heap[earliest]]:
                earliest = other
        else:
            earliest = other if other_place < place else earliest
            place = min(place, other_place)
    return earliest


@inlined
def _put(buffer: TimeBuffer, slot: int, place: int, node: int) -> None:
    buffer.heap[node] = slot
    buffer.place[node] = place
    buffer.position[slot] = node
