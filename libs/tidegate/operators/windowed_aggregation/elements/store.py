"""The elements of windows: per window a list of the records that it holds, in order of arrival.

An element stores its value, its times and the numbers that were read from it. A removed element keeps its slot until
the batch's tables are made. Until then it is a ghost, which is in no list.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from tidegate.contracts.operator import Array, ArraySpec
from tidegate.kernels import payloads
from tidegate.kernels.compiled import inlined, wide
from tidegate.kernels.memory import arena, slots
from tidegate.kernels.memory.arena import Arena
from tidegate.kernels.memory.slots import SlotPool
from tidegate.kernels.payloads import FlatRecords, Payloads
from tidegate.kernels.touched import FREE, OPENED
from tidegate.operators.windowed_aggregation.aggregates import Numbers

NONE = -1
"""No element."""

ELEMENT_BYTES = 16
"""Bytes that count for an element beside its value: its times."""

_LONGS, _LENGTHS = ("timestamp", "offset", "checksum"), ("key_length", "value_length", "headers_length")
_ELEMENT = np.dtype(
    [
        *((name, "i8") for name in _LONGS),
        *((name, "i4") for name in ("block", *_LENGTHS, "window", "before", "after", "status")),
    ]
)
_COUNTS = ("first", "last", "length", "eviction_pending")
_CONTENT = np.dtype([("since", "i8"), ("bytes", "i8"), *((name, "i4") for name in _COUNTS)])


class Elements(NamedTuple):
    """All elements of a partition.

    Per element: its record's value and times, its window's slot, the elements before and after it in its window, and
    the state of its slot; and `width` numbers, one element's after the other, as int64 and as float64 over the same
    memory, with which of the two each is.
    """

    payloads: Payloads
    pool: SlotPool
    window: Array
    before: Array
    after: Array
    status: Array
    whole: Array
    double: Array
    is_double: Array
    width: int


class Content(NamedTuple):
    """The elements of each window, in numbers.

    Per window: how many records came since it fired, the bytes of its elements, the first and the last element, how
    many there are, and whether a function has yet to evict elements from it.
    """

    since: Array
    bytes: Array
    first: Array
    last: Array
    length: Array
    eviction_pending: Array


def arrays_of(numbers: int) -> tuple[ArraySpec, ...]:
    """Return the arrays of elements that have so many numbers each."""
    common = (
        ArraySpec("content", "int64", "slots", _CONTENT.itemsize // 8),
        ArraySpec("elements_numbers", "int64", "fixed", slots.NUMBERS),
        ArraySpec("values_numbers", "int64", "fixed", arena.NUMBERS),
        ArraySpec("element", "int64", "elements", _ELEMENT.itemsize // 8),
        ArraySpec("values", "uint8", "values"),
    )
    if numbers == 0:
        return common
    return (
        *common,
        ArraySpec("amounts", "int64", "elements", numbers),
        ArraySpec("amounts_are_doubles", "uint8", "elements", numbers),
    )


CAPACITY = {"elements": 2048, "values": 65536}


def elements_of(arrays: Mapping[str, Array]) -> Elements:
    """Return the elements in the arrays as the kernels take them."""
    element, values = arrays["element"].view(_ELEMENT), arrays["values"]
    blocks = Arena(values, values.view(np.int64), arrays["values_numbers"])
    stored = Payloads(blocks, *(element[name] for name in ("block", *_LENGTHS, *_LONGS)))
    amounts = arrays.get("amounts", np.zeros(0, np.int64))
    return Elements(
        stored,
        SlotPool(arrays["elements_numbers"], element["offset"]),
        element["window"],
        element["before"],
        element["after"],
        element["status"],
        amounts,
        amounts.view(np.float64),
        arrays.get("amounts_are_doubles", np.zeros(0, np.uint8)),
        len(amounts) // len(element),
    )


def content_of(arrays: Mapping[str, Array]) -> Content:
    """Return the windows' content in the arrays as the kernels take it."""
    content = arrays["content"].view(_CONTENT)
    return Content(*(content[name] for name in Content._fields))


@inlined
def clear(content: Content, window: int) -> None:
    """Reset the window's content to that of a window without elements."""
    content.since[window] = 0
    content.bytes[window] = 0
    content.first[window] = NONE
    content.last[window] = NONE
    content.length[window] = 0
    content.eviction_pending[window] = 0


@inlined
def has_slot(elements: Elements) -> bool:
    """Return True if there is a slot for one more element; its value may still lack room."""
    return slots.has_slot(elements.pool)


@inlined
def size_of(value_length: int) -> Any:
    """Return the bytes that count for an element with a value of that length."""
    return max(0, value_length) + ELEMENT_BYTES


@inlined
def append(elements: Elements, content: Content, window: int, values: FlatRecords, row: int, numbers: Numbers) -> Any:
    """Add an element to the window, in its place by arrival, and return its slot. There must be room."""
    unused = elements.pool.numbers[slots.FREE] == 0
    slot = slots.take(elements.pool)
    if unused:
        elements.payloads.block[slot] = 0
        elements.payloads.checksum[slot] = 0
    payloads.store(elements.payloads, slot, values, row)
    elements.window[slot] = window
    elements.status[slot] = OPENED
    for number in range(elements.width):
        _keep_number(elements, slot * elements.width + number, numbers, number, row)
    _insert(elements, content, slot)
    return slot


@inlined
def _keep_number(elements: Elements, at: int, numbers: Numbers, number: int, row: int) -> None:
    elements.is_double[at] = numbers.is_double[number, row]
    if numbers.is_double[number, row]:
        elements.double[at] = numbers.double[number, row]
    else:
        elements.whole[at] = numbers.whole[number, row]


@inlined
def _insert(elements: Elements, content: Content, slot: int) -> None:
    """Put the element into its window's list, in its place by arrival."""
    window = wide(elements.window[slot])
    after = wide(NONE)
    before = wide(content.last[window])
    while before != NONE and elements.payloads.offset[before] > elements.payloads.offset[slot]:
        after = before
        before = wide(elements.before[before])
    _link(elements, content, window, before, slot)
    _link(elements, content, window, slot, after)
    content.length[window] += 1
    content.bytes[window] += size_of(wide(elements.payloads.value_length[slot]))


@inlined
def move(elements: Elements, content: Content, slot: int, window: int) -> None:
    """Move the element from its window's list to that of another window, in its place by arrival."""
    unlink(elements, content, slot)
    elements.window[slot] = window
    _insert(elements, content, slot)


@inlined
def merge(elements: Elements, content: Content, window: int, other: int) -> None:
    """Move the list of the other window, whose elements name this window already, into its list, by arrival."""
    after = wide(NONE)
    before = wide(content.last[window])
    slot = wide(content.last[other])
    while slot != NONE:
        earlier = wide(elements.before[slot])
        while before != NONE and elements.payloads.offset[before] > elements.payloads.offset[slot]:
            after = before
            before = wide(elements.before[before])
        _link(elements, content, window, before, slot)
        _link(elements, content, window, slot, after)
        after = slot
        slot = earlier
    content.length[window] += content.length[other]
    content.bytes[window] += content.bytes[other]
    clear(content, other)


@inlined
def unlink(elements: Elements, content: Content, slot: int) -> None:
    """Take the element out of its window's list."""
    window = wide(elements.window[slot])
    _link(elements, content, window, wide(elements.before[slot]), wide(elements.after[slot]))
    content.length[window] -= 1
    content.bytes[window] -= size_of(wide(elements.payloads.value_length[slot]))


@inlined
def _link(elements: Elements, content: Content, window: int, before: int, after: int) -> None:
    """Let `after` follow `before` in the window's list; NONE: the end of the list."""
    if before == NONE:
        content.first[window] = after
    else:
        elements.after[before] = after
    if after == NONE:
        content.last[window] = before
    else:
        elements.before[after] = before


@inlined
def find(elements: Elements, content: Content, window: int, arrival: int) -> Any:
    """Return the window's element of that arrival; NONE if there is none."""
    last = wide(content.last[window])
    if last == NONE or elements.payloads.offset[last] < arrival:
        return wide(NONE)
    slot = wide(content.first[window])
    while slot != NONE and elements.payloads.offset[slot] < arrival:
        slot = wide(elements.after[slot])
    return slot if slot != NONE and elements.payloads.offset[slot] == arrival else wide(NONE)


@inlined
def number(elements: Elements, row: int, slot: int) -> Any:
    """Return the element's number in that row of Numbers, as a double."""
    at = slot * elements.width + row
    return elements.double[at] if elements.is_double[at] else np.float64(elements.whole[at])


@inlined
def free(elements: Elements, slot: int) -> None:
    """Free the slot, which is in no list."""
    payloads.drop(elements.payloads, slot)
    slots.give_back(elements.pool, slot)
    elements.status[slot] = FREE
