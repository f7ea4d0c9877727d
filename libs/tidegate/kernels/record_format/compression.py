"""The compressions of Kafka record batches, whole batches at a time.

Snappy is written and read with the framing of the Java client (xerial), and read without it too.
"""

from __future__ import annotations

import struct

import cramjam

from tidegate.contracts.records import Bytes

CODES = {"none": 0, "gzip": 1, "snappy": 2, "lz4": 3, "zstd": 4}
"""A batch's attributes hold the code in their lowest three bits."""

CODE_MASK = 7
_XERIAL_MAGIC = b"\x82SNAPPY\x00"
_XERIAL_HEADER = _XERIAL_MAGIC + struct.pack(">ii", 1, 1)
_XERIAL_BLOCK_BYTES = 32 * 1024


LARGEST_BATCH_BYTES = 2**28
"""What the records of one batch may take uncompressed: brokers bound the compressed size alone."""

_NO_ROOM = "failed to write whole buffer"
"""What cramjam says when its output is full."""


class TooLarge(ValueError):
    """More bytes were compressed than there is room for."""


def decompress(payload: Bytes, code: int, room: Bytes) -> int:
    """Write the bytes that were compressed to the front of `room`, and never more; return how many they are.

    Raises TooLarge where they do not fit, ValueError for a code that Kafka lacks and for damaged bytes.
    """
    try:
        return _decompressed(payload.data, code, room)
    except (cramjam.DecompressionError, struct.error) as cause:
        if _NO_ROOM in str(cause):
            raise TooLarge(f"more than {len(room)} bytes") from cause
        raise ValueError(f"the compressed records are damaged ({cause})") from cause


def compress(payload: Bytes, code: int) -> bytes:
    """The compressed bytes; the same for the same input."""
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
