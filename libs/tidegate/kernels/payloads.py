"""One stored record per slot: key, value and headers in one block of an arena.

A record's bytes are either in the batch that is being worked on or in the arena, and the two are told apart by sign: a
position >= 0 is in the batch, `~position` in the arena. The same holds for sources: a row of the batch when >= 0,
`~slot` otherwise. So nothing is copied until it is known to stay (`store`) or to leave (`columns.gather`).
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from tidegate.contracts.operator import Array
from tidegate.contracts.records import Records
from tidegate.kernels.compiled import compiled_in_place, inlined, wide
from tidegate.kernels.compiled.words import WORD, copy_bytes
from tidegate.kernels.hash_index import mix
from tidegate.kernels.memory.arena import (
    Arena,
    allocate,
    class_words,
    forget_free_blocks,
    release,
    size_class,
)


class Batch(NamedTuple):
    """`contracts.Records` as kernels take them: read-only, contiguous, always of the same types."""

    data: Array
    offset: Array
    timestamp: Array
    key_start: Array
    key_length: Array
    value_start: Array
    value_length: Array
    headers_start: Array
    headers_length: Array


class Payloads(NamedTuple):
    """Per slot: the block (its first word; 0: none), the three lengths (value -1: null), the record's timestamp and
    offset, and what `check` says of the slot (0 while it has no block)."""

    arena: Arena
    block: Array
    key_length: Array
    value_length: Array
    headers_length: Array
    timestamp: Array
    offset: Array
    check: Array


class Located(NamedTuple):
    """Where the parts of some records are: signed positions and lengths (-1: null), and their times."""

    key_start: Array
    key_length: Array
    value_start: Array
    value_length: Array
    headers_start: Array
    headers_length: Array
    timestamp: Array
    offset: Array


def batch_of(records: Records, timestamp: Array | None = None) -> Batch:
    """The records for kernels, without a copy; with other event timestamps where they are given."""
    arrays = {name: _frozen(getattr(records, name)) for name in Batch._fields}
    if timestamp is not None:
        arrays["timestamp"] = _frozen(timestamp)
    return Batch(**arrays)


def _frozen(array: Array) -> Array:
    view = np.ascontiguousarray(array).view()
    view.flags.writeable = False
    return view


@inlined
def start_of(payloads: Payloads, slot: int) -> Any:
    """The position in the arena of a stored record's key, which its value and headers follow."""
    return wide(payloads.block[slot]) * WORD


@inlined
def content_hash(payloads: Payloads, slot: int, seed: int) -> Any:
    """A hash of all that is stored of a slot's record; another seed gives another one."""
    mixed = mix(seed ^ payloads.timestamp[slot])
    mixed = mix(mixed ^ payloads.offset[slot])
    mixed = mix(mixed ^ payloads.key_length[slot] ^ (wide(payloads.value_length[slot]) << 32))
    mixed = mix(mixed ^ payloads.headers_length[slot])
    rest = wide(payload_length(payloads, slot))
    word = wide(payloads.block[slot])
    while rest >= WORD:
        mixed = mix(mixed ^ payloads.arena.words[word])
        word += 1
        rest -= WORD
    if rest > 0:
        mixed = mix(mixed ^ (payloads.arena.words[word] & ((1 << 8 * rest) - 1)))
    return mix(mixed)


@inlined
def payload_length(payloads: Payloads, slot: int) -> Any:
    """The bytes of a stored record."""
    value_length = max(0, wide(payloads.value_length[slot]))
    return wide(payloads.key_length[slot]) + value_length + wide(payloads.headers_length[slot])


@inlined
def record_length(batch: Batch, row: int) -> Any:
    """The bytes of a record of the batch: key, value and headers, nulls as none."""
    return max(0, batch.key_length[row]) + max(0, batch.value_length[row]) + max(0, batch.headers_length[row])


@inlined
def store(payloads: Payloads, slot: int, batch: Batch, row: int) -> bool:
    """The slot holds the record of that row, in its old block if that fits. False when the arena has no room."""
    length = record_length(batch, row)
    if payloads.block[slot] == 0 or size_class(length) != size_class(payload_length(payloads, slot)):
        drop(payloads, slot)
        payloads.block[slot] = allocate(payloads.arena, length) // WORD
        if payloads.block[slot] == 0:
            return False
    payloads.key_length[slot] = max(0, batch.key_length[row])
    payloads.value_length[slot] = batch.value_length[row]
    payloads.headers_length[slot] = max(0, batch.headers_length[row])
    payloads.timestamp[slot] = batch.timestamp[row]
    payloads.offset[slot] = batch.offset[row]
    _write(payloads, slot, batch, row)
    return True


@inlined
def _write(payloads: Payloads, slot: int, batch: Batch, row: int) -> None:
    data = payloads.arena.data
    at = start_of(payloads, slot)
    copy_bytes(batch.data, batch.key_start[row], data, at, wide(payloads.key_length[slot]))
    at += payloads.key_length[slot]
    value_length = max(0, wide(payloads.value_length[slot]))
    copy_bytes(batch.data, batch.value_start[row], data, at, value_length)
    at += value_length
    copy_bytes(batch.data, batch.headers_start[row], data, at, wide(payloads.headers_length[slot]))


@inlined
def drop(payloads: Payloads, slot: int) -> None:
    """The slot has no block."""
    if payloads.block[slot] != 0:
        release(payloads.arena, start_of(payloads, slot), payload_length(payloads, slot))
        payloads.block[slot] = 0


@compiled_in_place
def repack(payloads: Payloads, slots: int, spare: Array) -> None:
    """All blocks of the first `slots` slots lie side by side at the front. `spare`: int64[live words + 1], scratch."""
    words = payloads.arena.words
    end = 1
    for slot in range(slots):
        if payloads.block[slot] != 0:
            length = class_words(size_class(payload_length(payloads, slot)))
            first = wide(payloads.block[slot])
            payloads.block[slot] = end
            for word in range(first, first + length):
                spare[end] = words[word]
                end += 1
    for word in range(end):
        words[word] = spare[word]
    forget_free_blocks(payloads.arena, end)


@compiled_in_place
def locate(payloads: Payloads, batch: Batch, sources: Array, located: Located) -> None:
    """`located` says where each source's parts are: a row of the batch (>= 0) or a slot (`~slot`)."""
    for at in range(len(sources)):
        if sources[at] >= 0:
            _locate_row(batch, sources[at], located, at)
        else:
            _locate_slot(payloads, ~sources[at], located, at)


@inlined
def _locate_row(batch: Batch, row: int, located: Located, at: int) -> None:
    located.key_start[at] = batch.key_start[row]
    located.key_length[at] = batch.key_length[row]
    located.value_start[at] = batch.value_start[row]
    located.value_length[at] = batch.value_length[row]
    located.headers_start[at] = batch.headers_start[row]
    located.headers_length[at] = batch.headers_length[row]
    located.timestamp[at] = batch.timestamp[row]
    located.offset[at] = batch.offset[row]


@inlined
def _locate_slot(payloads: Payloads, slot: int, located: Located, at: int) -> None:
    key = start_of(payloads, slot)
    value = key + payloads.key_length[slot]
    headers = value + max(0, payloads.value_length[slot])
    located.key_start[at] = ~key
    located.key_length[at] = payloads.key_length[slot]
    located.value_start[at] = ~value
    located.value_length[at] = payloads.value_length[slot]
    located.headers_start[at] = ~headers
    located.headers_length[at] = payloads.headers_length[slot]
    located.timestamp[at] = payloads.timestamp[slot]
    located.offset[at] = payloads.offset[slot]
