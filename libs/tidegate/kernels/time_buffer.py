"""The time-ordered buffer: slots ordered by (place, arrival), with their bytes. May import: numpy, contracts, kernels.

A binary heap of slots whose positions are known, so that any slot can be removed or moved, not the oldest alone.
Suppression and the buffered join both hold their records in one. A slot's position is -1 while it is not held;
`arrival` is unique among the slots held, so the order is total and the same whatever happened before.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from tidegate.contracts.operator import Array
from tidegate.kernels.compiled import inlined, wide

HELD, HELD_BYTES = 0, 1
NUMBERS = 2
NOT_HELD = -1


class TimeBuffer(NamedTuple):
    """`numbers`: slots held and their bytes. `heap`: slots; `position` in it, `place` and `arrival` are per slot."""

    numbers: Array
    heap: Array
    position: Array
    place: Array
    arrival: Array


@inlined
def precedes(buffer: TimeBuffer, slot: int, other: int) -> bool:
    """True when the slot leaves before the other."""
    if buffer.place[slot] != buffer.place[other]:
        return bool(buffer.place[slot] < buffer.place[other])
    return bool(buffer.arrival[slot] < buffer.arrival[other])


@inlined
def is_held(buffer: TimeBuffer, slot: int) -> bool:
    """True while the slot is in the buffer."""
    return bool(buffer.position[slot] != NOT_HELD)


@inlined
def push(buffer: TimeBuffer, slot: int, place: int, arrival: int, size: int) -> None:
    """The slot is held at that place; `size` bytes more are held."""
    buffer.place[slot] = place
    buffer.arrival[slot] = arrival
    last = buffer.numbers[HELD]
    buffer.numbers[HELD] += 1
    buffer.numbers[HELD_BYTES] += size
    _rise(buffer, slot, last)


@inlined
def remove(buffer: TimeBuffer, slot: int, size: int) -> None:
    """The slot is not held; `size` bytes fewer are held."""
    node = wide(buffer.position[slot])
    buffer.numbers[HELD] -= 1
    buffer.numbers[HELD_BYTES] -= size
    last = wide(buffer.heap[buffer.numbers[HELD]])
    buffer.position[slot] = NOT_HELD
    if last != slot:
        _settle(buffer, last, node)


@inlined
def move(buffer: TimeBuffer, slot: int, place: int) -> None:
    """The held slot is at another place; its arrival stays."""
    buffer.place[slot] = place
    _settle(buffer, slot, wide(buffer.position[slot]))


@inlined
def next_node(node: int, descend: bool) -> Any:
    """The heap's node after `node`, from the top down, left to right; 0 after the last. Needs no stack.

    Nodes that are due form a tree from the top, so a walk that descends below due nodes alone sees them all and
    as many others at most.
    """
    if descend:
        return 2 * node + 1
    while node > 0 and node & 1 == 0:
        node = (node - 1) >> 1
    return node + 1 if node > 0 else 0


@inlined
def _settle(buffer: TimeBuffer, slot: int, node: int) -> None:
    if node > 0 and precedes(buffer, slot, wide(buffer.heap[(node - 1) >> 1])):
        _rise(buffer, slot, node)
    else:
        _sink(buffer, slot, node)


@inlined
def _rise(buffer: TimeBuffer, slot: int, node: int) -> None:
    while node > 0:
        above = (node - 1) >> 1
        other = wide(buffer.heap[above])
        if not precedes(buffer, slot, other):
            break
        _put(buffer, other, node)
        node = above
    _put(buffer, slot, node)


@inlined
def _sink(buffer: TimeBuffer, slot: int, node: int) -> None:
    count = buffer.numbers[HELD]
    while 2 * node + 1 < count:
        below = 2 * node + 1
        if below + 1 < count and precedes(buffer, wide(buffer.heap[below + 1]), wide(buffer.heap[below])):
            below += 1
        other = wide(buffer.heap[below])
        if not precedes(buffer, other, slot):
            break
        _put(buffer, other, node)
        node = below
    _put(buffer, slot, node)


@inlined
def _put(buffer: TimeBuffer, slot: int, node: int) -> None:
    buffer.heap[node] = slot
    buffer.position[slot] = node
