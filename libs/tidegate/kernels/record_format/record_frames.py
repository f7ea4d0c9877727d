"""The positions of record batches in a partition's bytes, and the contents of their envelopes.

A batch has an envelope of 61 bytes (magic 2, big-endian): base offset, size of what follows it, leader epoch, magic,
checksum, attributes, last offset delta, base and largest timestamp, producer id and epoch, base sequence, record count.
"""

from __future__ import annotations

import struct
from typing import Any, NamedTuple, TypeVar

import google_crc32c
import numpy as np
import numpy.typing as npt

from tidegate.contracts.errors import EngineError
from tidegate.contracts.records import Bytes, Int64s
from tidegate.kernels.compiled import compiled
from tidegate.kernels.record_format.varint import read_big_endian

Item = TypeVar("Item", bound="np.generic[Any]")

MAGIC = 2
ENVELOPE = struct.Struct(">qiibIhiqqqhii")
ENVELOPE_BYTES = ENVELOPE.size
CHECKED_FROM = 21
"""The checksum covers everything from this position on, which is that of the attributes."""
SIZE_END = 12
"""The size field counts the bytes from this position on."""

LOG_APPEND_TIME = 0x08
TRANSACTIONAL = 0x10
CONTROL = 0x20

_MAGIC_AT = 16
_SMALLEST_OLD_SIZE = 14
_LAST = 2**63 - 1


class Frames(NamedTuple):
    """The complete batches of some bytes: each array has one item per batch.

    A batch takes the bytes [start, end) and the offsets from `base_offset` to `last_offset`, both included. Of a batch
    older than magic 2 only start, end, base_offset and magic are known.
    """

    start: Int64s
    end: Int64s
    base_offset: Int64s
    last_offset: Int64s
    magic: Int64s
    crc: Int64s
    attributes: Int64s
    base_timestamp: Int64s
    max_timestamp: Int64s
    producer_id: Int64s
    record_count: Int64s

    def where(self, wanted: npt.NDArray[np.bool_]) -> Frames:
        """Return the frames that the mask selects."""
        return Frames(*(column[wanted] for column in self))


def read_only(array: npt.NDArray[Item]) -> npt.NDArray[Item]:
    """Return a contiguous view that kernels cannot write to: numba compiles read-only and writable arrays apart."""
    view = np.ascontiguousarray(array).view()
    view.flags.writeable = False
    return view


def frames(data: Bytes) -> Frames:
    """Return the complete batches in the bytes; a batch that is cut off at the end is left out.

    Raise EngineError, naming the base offset, for an impossible envelope.
    """
    count, damaged = _count_frames(data)
    table = np.zeros((len(Frames._fields), count), np.int64)
    if damaged < 0:
        damaged = _read_frames(data, table)
    if damaged >= 0:
        raise damaged_batch(int(read_big_endian(data, damaged, 8)), "its envelope contradicts itself")
    return Frames(*table)


def check_sums(data: Bytes, batches: Frames) -> None:
    """Check the checksum of every batch. Raise EngineError, naming the base offset, if one is wrong."""
    for start, end, base_offset, crc in zip(*(column.tolist() for column in _checked(batches)), strict=True):
        if google_crc32c.value(data[start + CHECKED_FROM : end]) != crc:
            raise damaged_batch(base_offset, "its checksum is wrong")


def damaged_batch(base_offset: int, reason: str) -> EngineError:
    """Return the error for a batch that cannot be read."""
    return EngineError(
        f"a record batch is damaged: {reason}",
        value=f"base offset {base_offset}",
        remedy="check the broker's disk and network; if stored data is damaged, restore it from a replica",
    )


def _checked(batches: Frames) -> tuple[Int64s, ...]:
    return batches.start, batches.end, batches.base_offset, batches.crc


@compiled
def _count_frames(data: Bytes) -> tuple[int, int]:
    """Return the number of complete batches, and the position of one with an impossible size or magic (-1: none)."""
    at = 0
    count = 0
    while at + _MAGIC_AT < len(data):
        size = read_big_endian(data, at + 8, 4)
        magic = read_big_endian(data, at + _MAGIC_AT, 1)
        smallest = ENVELOPE_BYTES - SIZE_END if magic == MAGIC else _SMALLEST_OLD_SIZE
        if magic < 0 or magic > MAGIC or size < smallest:
            return count, at
        at += SIZE_END + size
        if at > len(data):
            break
        count += 1
    return count, -1


@compiled
def _read_frames(data: Bytes, table: Int64s) -> int:
    """Fill the table with the columns of Frames; return the position of a batch with impossible numbers (-1: none)."""
    at = 0
    for frame in range(table.shape[1]):
        end = at + SIZE_END + read_big_endian(data, at + 8, 4)
        base_offset = read_big_endian(data, at, 8)
        magic = read_big_endian(data, at + _MAGIC_AT, 1)
        table[0, frame] = at
        table[1, frame] = end
        table[2, frame] = base_offset
        table[4, frame] = magic
        if magic == MAGIC:
            last_delta = read_big_endian(data, at + 23, 4)
            count = read_big_endian(data, at + 57, 4)
            if base_offset < 0 or last_delta < 0 or base_offset > _LAST - last_delta or count < 0:
                return at
            table[3, frame] = base_offset + last_delta
            table[5, frame] = read_big_endian(data, at + 17, 4) & 0xFFFFFFFF
            table[6, frame] = read_big_endian(data, at + 21, 2)
            table[7, frame] = read_big_endian(data, at + 27, 8)
            table[8, frame] = read_big_endian(data, at + 35, 8)
            table[9, frame] = read_big_endian(data, at + 43, 8)
            table[10, frame] = count
        at = end
    return -1
