"""One stored record per slot: key, value and headers in one block of an arena.

The bytes of a record are either in the batch that is being processed or in the arena. The sign of a position says
which: a position >= 0 is in the batch, `~position` is in the arena. Sources work the same way: a source >= 0 is a row
of the batch, `~slot` is a slot. So nothing is copied until it is known to stay (`store`) or to leave
(`columns.gather`).
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


class FlatRecords(NamedTuple):
    """The columns of `contracts.Records` as kernels take them: read-only, contiguous, always of the same types."""

    data: Array
    offset: Array
    timestamp: Array
    key_start: Array
    key_length: Array
    value_start: Array
    value_length: Array
    headers_start: Array
    headers_length: Array


LENGTHS = ("key_length", "value_length", "headers_length")


class Payloads(NamedTuple):
    """The stored records, by slot.

    Per slot: the first word of its block (0: none), the three lengths (value -1: null), the record's timestamp and
    offset, and in `checksum` a checksum of the slot (0 while it has no block).
    """

    arena: Arena
    block: Array
    key_length: Array
    value_length: Array
    headers_length: Array
    timestamp: Array
    offset: Array
    checksum: Array


class Located(NamedTuple):
    """Where the parts of records are, and the records' times and offsets.

    Positions are signed; a length of -1 is a null.
    """

    key_start: Array
    key_length: Array
    value_start: Array
    value_length: Array
    headers_start: Array
    headers_length: Array
    timestamp: Array
    offset: Array


def flat_records(records: Records, timestamp: Array | None = None) -> FlatRecords:
    """Return the records for kernels, without a copy. If `timestamp` is given, it replaces their event timestamps."""
    arrays = {name: frozen(getattr(records, name)) for name in FlatRecords._fields}
    if timestamp is not None:
        arrays["timestamp"] = frozen(timestamp)
    return FlatRecords(**arrays)


def frozen(array: Array) -> Array:
    """Return the array as kernels take it: contiguous and read-only, so that they are compiled once."""
    view = np.ascontiguousarray(array).view()
    view.flags.writeable = False
    return view


@inlined
def start_of(payloads: Payloads, slot: int) -> Any:
    """Return the position of a stored record's key in the arena; its value and headers follow it."""
    return wide(payloads.block[slot]) * WORD


@inlined
def content_hash(payloads: Payloads, slot: int, seed: int) -> Any:
    """Return a hash of everything that is stored of a slot's record; another seed gives another hash."""
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
    """Return the length of a stored record in bytes."""
    value_length = max(0, wide(payloads.value_length[slot]))
    return wide(payloads.key_length[slot]) + value_length + wide(payloads.headers_length[slot])


@inlined
def record_length(batch: FlatRecords, row: int) -> Any:
    """Return the length of a record of the batch in bytes: key, value and headers, where a null has none."""
    return max(0, batch.key_length[row]) + max(0, batch.value_length[row]) + max(0, batch.headers_length[row])


@inlined
def store(payloads: Payloads, slot: int, batch: FlatRecords, row: int) -> bool:
    """Store the record of the row in the slot, in the slot's old block if that fits.

    Return False if the arena has no room.
    """
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
def _write(payloads: Payloads, slot: int, batch: FlatRecords, row: int) -> None:
    data = payloads.arena.data
    at = start_of(payloads, slot)
    copy_bytes(batch.data, batch.key_start[row], data, at, wide(payloads.key_length[slot]))
    at += payloads.key_length[slot]
    value_length = max(0, wide(payloads.value_length[slot]))
    copy_bytes(batch.data, batch.value_start[row], data, at, value_length)
    at += value_length
    copy_bytes(batch.data, batch.headers_start[row], data, at, wide(payloads.headers_length[slot]))


@inlined
def set_checksum(payloads: Payloads, slot: int, checksum: int, numbers: Array, at: int) -> None:
    """Set the slot's checksum, and keep `numbers[at]` the sum of all slots' checksums."""
    numbers[at] += checksum - wide(payloads.checksum[slot])
    payloads.checksum[slot] = checksum


@inlined
def drop(payloads: Payloads, slot: int) -> None:
    """Release the slot's block, if it has one."""
    if payloads.block[slot] != 0:
        release(payloads.arena, start_of(payloads, slot), payload_length(payloads, slot))
        payloads.block[slot] = 0


@inlined
def forget(payloads: Payloads, slot: int, numbers: Array, at: int) -> None:
    """Release the slot's block, if it has one, and take its checksum out of the sum in `numbers[at]`."""
    drop(payloads, slot)
    set_checksum(payloads, slot, wide(0), numbers, at)


@compiled_in_place
def repack(payloads: Payloads, slots: int, spare: Array) -> None:
    """Move all blocks of the first `slots` slots to the front of the arena, without gaps.

    `spare`: int64[live words + 1], scratch.
    """
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
def locate(payloads: Payloads, batch: FlatRecords, sources: Array, located: Located) -> None:
    """Write to `located` where the parts of each source are: a row of the batch (>= 0) or a slot (`~slot`)."""
    for at in range(len(sources)):
        if sources[at] >= 0:
            _locate_row(batch, sources[at], located, at)
        else:
            _locate_slot(payloads, ~sources[at], located, at)


@inlined
def _locate_row(batch: FlatRecords, row: int, located: Located, at: int) -> None:
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
