"""The time-ordered buffer: slots ordered by (place, arrival), with their bytes.

A heap of slots whose positions are known, so that any slot can be removed or moved, not the oldest alone. Places lie in
the heap's order, where comparing reads them side by side. Suppression and the buffered join both hold their records in
one. A slot's position is -1 while it is not held; `arrival` is unique among the slots held, so the order is total and
the same whatever happened before.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from tidegate.contracts.operator import Array
from tidegate.kernels.compiled import inlined, wide

HELD, HELD_BYTES = 0, 1
NUMBERS = 2
NOT_HELD = -1

WAYS = 4
"""Nodes below a node: four, whose places lie side by side, make the heap half as high as two would."""


class TimeBuffer(NamedTuple):
    """`numbers`: slots held and their bytes. By node of the heap: `heap` (slots) and `place`. Per slot: the others."""

    numbers: Array
    heap: Array
    place: Array
    position: Array
    arrival: Array
    size: Array


@inlined
def is_held(buffer: TimeBuffer, slot: int) -> bool:
    """True while the slot is in the buffer."""
    return bool(buffer.position[slot] != NOT_HELD)


@inlined
def place_of(buffer: TimeBuffer, slot: int) -> Any:
    """Where the held slot is in the order."""
    return buffer.place[buffer.position[slot]]


@inlined
def push(buffer: TimeBuffer, slot: int, place: int, arrival: int, size: int) -> None:
    """The slot is held at that place, with `size` bytes."""
    buffer.arrival[slot] = arrival
    buffer.size[slot] = size
    last = buffer.numbers[HELD]
    buffer.numbers[HELD] = last + 1
    buffer.numbers[HELD_BYTES] += size
    _rise(buffer, slot, place, last)


@inlined
def remove(buffer: TimeBuffer, slot: int) -> None:
    """The slot is not held, nor are its bytes."""
    node = wide(buffer.position[slot])
    end = buffer.numbers[HELD] - 1
    buffer.numbers[HELD] = end
    buffer.numbers[HELD_BYTES] -= buffer.size[slot]
    buffer.position[slot] = NOT_HELD
    if node != end:
        _settle(buffer, wide(buffer.heap[end]), buffer.place[end], node)


@inlined
def move(buffer: TimeBuffer, slot: int, place: int) -> None:
    """The held slot is at another place; its arrival stays."""
    _settle(buffer, slot, place, wide(buffer.position[slot]))


@inlined
def resize(buffer: TimeBuffer, slot: int, size: int) -> None:
    """The held slot has that many bytes."""
    buffer.numbers[HELD_BYTES] += size - buffer.size[slot]
    buffer.size[slot] = size


@inlined
def leaves_before_above(buffer: TimeBuffer, node: int) -> bool:
    """True when the order is broken at the node, which is not the top."""
    return _precedes(buffer, wide(buffer.heap[node]), buffer.place[node], _above(node))


@inlined
def next_node(node: int, descend: bool) -> Any:
    """The heap's node after `node`, from the top down, left to right; 0 after the last. Needs no stack.

    Nodes that are due form a tree from the top, so a walk that descends below due nodes alone sees them all and
    as many others at most.
    """
    if descend:
        return WAYS * node + 1
    while node > 0 and node % WAYS == 0:
        node = _above(node)
    return node + 1 if node > 0 else 0


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
    """True when the slot, if it has that place, leaves before the node's."""
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
    """Which of the nodes below this one leaves first."""
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
