"""The compressions of Kafka record batches, whole batches at a time. May import: numpy, cramjam, contracts.

Snappy is written and read with the framing of the Java client (xerial), and read without it too.
"""

from __future__ import annotations

import struct

import cramjam
import numpy as np

from tidegate.contracts.records import Bytes

CODES = {"none": 0, "gzip": 1, "snappy": 2, "lz4": 3, "zstd": 4}
"""A batch's attributes hold the code in their lowest three bits."""

CODE_MASK = 7
_XERIAL_MAGIC = b"\x82SNAPPY\x00"
_XERIAL_HEADER = _XERIAL_MAGIC + struct.pack(">ii", 1, 1)
_XERIAL_BLOCK_BYTES = 32 * 1024


def decompress(payload: Bytes, code: int) -> Bytes:
    """The bytes that were compressed. Raises ValueError for a code that Kafka lacks and for damaged bytes."""
    try:
        return np.frombuffer(memoryview(_decompressed(payload.data, code)), np.uint8)
    except (cramjam.DecompressionError, struct.error) as cause:
        raise ValueError(f"the compressed records are damaged ({cause})") from cause


def compress(payload: Bytes, code: int) -> bytes:
    """The compressed bytes; the same for the same input."""
    if code == CODES["snappy"]:
        return _xerial(payload.data)
    codec = {CODES["gzip"]: cramjam.gzip, CODES["lz4"]: cramjam.lz4, CODES["zstd"]: cramjam.zstd}[code]
    return bytes(codec.compress(payload.data))


def _decompressed(payload: memoryview, code: int) -> bytes | cramjam.Buffer:
    if code == CODES["gzip"]:
        return cramjam.gzip.decompress(payload)
    if code == CODES["snappy"]:
        return _unsnapped(payload)
    if code == CODES["lz4"]:
        return cramjam.lz4.decompress(payload)
    if code == CODES["zstd"]:
        return cramjam.zstd.decompress(payload)
    raise ValueError(f"the compression has the unknown code {code}")


def _unsnapped(payload: memoryview) -> bytes | cramjam.Buffer:
    if payload[: len(_XERIAL_MAGIC)] != _XERIAL_MAGIC:
        return cramjam.snappy.decompress_raw(payload)
    at, blocks = len(_XERIAL_HEADER), []
    while at < len(payload):
        (size,) = struct.unpack_from(">i", payload, at)
        at += struct.calcsize(">i")
        if not 0 <= size <= len(payload) - at:
            raise ValueError("a snappy block is longer than its batch")
        blocks.append(bytes(cramjam.snappy.decompress_raw(payload[at : at + size])))
        at += size
    return b"".join(blocks)


def _xerial(payload: memoryview) -> bytes:
    parts = [_XERIAL_HEADER]
    for start in range(0, len(payload), _XERIAL_BLOCK_BYTES):
        block = bytes(cramjam.snappy.compress_raw(payload[start : start + _XERIAL_BLOCK_BYTES]))
        parts += [struct.pack(">i", len(block)), block]
    return b"".join(parts)
