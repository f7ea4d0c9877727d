"""Compression and decompression of Kafka record batches, one whole batch at a time.

Snappy is written with the framing of the Java client (xerial), and read with or without it.
"""

from __future__ import annotations

import struct

import cramjam

from tidegate.contracts.records import Bytes

CODES = {"none": 0, "gzip": 1, "snappy": 2, "lz4": 3, "zstd": 4}
"""Compression codes, which are the lowest three bits of a batch's attributes."""

CODE_MASK = 7
_XERIAL_MAGIC = b"\x82SNAPPY\x00"
_XERIAL_HEADER = _XERIAL_MAGIC + struct.pack(">ii", 1, 1)
_XERIAL_BLOCK_BYTES = 32 * 1024


LARGEST_BATCH_BYTES = 2**28
"""Maximum uncompressed size of one batch's records: brokers limit only the compressed size."""

_NO_ROOM = "failed to write whole buffer"
"""Error text of cramjam when its output is full."""


class TooLarge(ValueError):
    """The decompressed bytes do not fit into the room for them."""


def decompress(payload: Bytes, code: int, room: Bytes) -> int:
    """Decompress to the front of `room`, never beyond its end, and return the number of bytes.

    Raise TooLarge if they do not fit, ValueError for an unknown code and for damaged bytes.
    """
    try:
        return _decompressed(payload.data, code, room)
    except (cramjam.DecompressionError, struct.error) as cause:
        if _NO_ROOM in str(cause):
            raise TooLarge(f"more than {len(room)} bytes") from cause
        raise ValueError(f"the compressed records are damaged ({cause})") from cause


def compress(payload: Bytes, code: int) -> bytes:
    """Return the compressed bytes, which are the same for the same input."""
    if code == CODES["snappy"]:
        return _xerial(payload.data)
    codec = {CODES["gzip"]: cramjam.gzip, CODES["lz4"]: cramjam.lz4, CODES["zstd"]: cramjam.zstd}[code]
    return bytes(codec.compress(payload.data))


def _decompressed(payload: memoryview, code: int, room: Bytes) -> int:
    if code == CODES["snappy"]:
        return _unsnapped(payload, room)
    codecs = {CODES["gzip"]: cramjam.gzip, CODES["lz4"]: cramjam.lz4, CODES["zstd"]: cramjam.zstd}
    if code not in codecs:
        raise ValueError(f"the compression has the unknown code {code}")
    return int(codecs[code].decompress_into(payload, room.data))


def _unsnapped(payload: memoryview, room: Bytes) -> int:
    if payload[: len(_XERIAL_MAGIC)] != _XERIAL_MAGIC:
        return _unsnapped_block(payload, room)
    at, written = len(_XERIAL_HEADER), 0
    while at < len(payload):
        (size,) = struct.unpack_from(">i", payload, at)
        at += struct.calcsize(">i")
        if not 0 <= size <= len(payload) - at:
            raise ValueError("a snappy block is longer than its batch")
        written += _unsnapped_block(payload[at : at + size], room[written:])
        at += size
    return written


def _unsnapped_block(block: memoryview, room: Bytes) -> int:
    if cramjam.snappy.decompress_raw_len(block) > len(room):
        raise TooLarge(f"more than {len(room)} bytes")
    return int(cramjam.snappy.decompress_raw_into(block, room.data))


def _xerial(payload: memoryview) -> bytes:
    parts = [_XERIAL_HEADER]
    for start in range(0, len(payload), _XERIAL_BLOCK_BYTES):
        block = bytes(cramjam.snappy.compress_raw(payload[start : start + _XERIAL_BLOCK_BYTES]))
        parts += [struct.pack(">i", len(block)), block]
    return b"".join(parts)
