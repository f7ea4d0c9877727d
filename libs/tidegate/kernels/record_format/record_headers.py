"""Record headers as Python objects: for tests, tools and rare lookups, never for each record of a batch.

b"" stands for no headers.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from tidegate.contracts.errors import EngineError
from tidegate.contracts.records import Bytes, Int64s
from tidegate.kernels.compiled import compiled
from tidegate.kernels.record_format.header_block import next_header
from tidegate.kernels.record_format.varint import read_varint, varint_size, write_varint

Header = tuple[bytes, bytes | None]

_SMALLEST_HEADER = 2


def varint(value: int) -> bytes:
    """Return the zigzag varint of the value."""
    out = np.empty(varint_size(value), np.uint8)
    write_varint(out, 0, value)
    return out.tobytes()


def encode_header(name: bytes, value: bytes | None) -> bytes:
    """Return one header as it is encoded in a block."""
    return varint(len(name)) + name + (varint(-1) if value is None else varint(len(value)) + value)


def encode_headers(headers: Iterable[Header]) -> bytes:
    """Return the block of these headers; inverse of `decode_headers`."""
    encoded = [encode_header(name, value) for name, value in headers]
    return varint(len(encoded)) + b"".join(encoded) if encoded else b""


def decode_headers(block: bytes) -> list[Header]:
    """Return the headers of a block, in order. Raise EngineError if the block is too short or has bytes left over."""
    return [
        (block[name:name_end], None if end < 0 else block[value:end])
        for name, name_end, value, end in _places(block).tolist()
    ]


def header_value(block: bytes, name: str) -> bytes | None:
    """Return the value of the last header with that name; None if there is none, or its value is null."""
    wanted = name.encode()
    for start, name_end, value, end in _places(block)[::-1]:
        if block[start:name_end] == wanted:
            return None if end < 0 else block[value:end]
    return None


def _places(block: bytes) -> Int64s:
    """Return an array [header, place]: where each name begins and ends, and where each value does (end -1: null)."""
    if not block:
        return np.zeros((0, 4), np.int64)
    data = np.frombuffer(block, np.uint8)
    count, at = read_varint(data, 0, len(data))
    places = np.zeros((max(0, min(count, len(block) // _SMALLEST_HEADER)), 4), np.int64)
    if at < 0 or count != len(places) or not _read_places(data, at, places):
        raise EngineError("a block of record headers is damaged", value=block[:80])
    return places


@compiled
def _read_places(data: Bytes, at: int, places: Int64s) -> bool:
    """Write the places of the headers from `at` on; return whether the headers end with the block."""
    end = len(data)
    for header in range(len(places)):
        name, size, value, length, at = next_header(data, at, end)
        if at < 0:
            return False
        places[header, 0], places[header, 1] = name, name + size
        places[header, 2], places[header, 3] = value, at if length >= 0 else -1
    return bool(at == end)
