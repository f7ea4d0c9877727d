"""Kafka's partitioner: the partition that the clients of Kafka choose for a key, murmur2 of its bytes.

The Java client, Kafka Streams, and librdkafka with `partitioner=murmur2_random` agree on it.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from tidegate.contracts.operator import Array
from tidegate.contracts.records import NULL_LENGTH
from tidegate.kernels.columns import binary_parts
from tidegate.kernels.compiled import compiled, inlined

_SEED, _FACTOR, _MASK, _POSITIVE = 0x9747B28C, 0x5BD1E995, 0xFFFFFFFF, 0x7FFFFFFF


def partitions_of(keys: pa.ChunkedArray, partitions: int) -> Array:
    """Return the partition (int64) of each key among so many partitions; -1 for a null key, which may be anywhere."""
    data, starts, lengths = binary_parts(keys)
    hashes = np.empty(len(keys), np.int64)
    _hash_all(data, starts, lengths, hashes)
    return np.where(lengths == NULL_LENGTH, -1, (hashes & _POSITIVE) % partitions)


@compiled
def _hash_all(data: Array, starts: Array, lengths: Array, hashes: Array) -> None:
    for row in range(len(hashes)):
        hashes[row] = _murmur2(data, starts[row], starts[row] + lengths[row])


@inlined
def _murmur2(data: Array, start: int, end: int) -> Any:
    """Return the hash of the bytes in [start, end), as a number of 32 bits without a sign."""
    found = np.int64(_SEED) ^ (end - start)
    at = start
    while at + 4 <= end:
        word = np.int64(0)
        for place in range(4):
            word |= np.int64(data[at + place]) << (8 * place)
        word = (word * _FACTOR) & _MASK
        word ^= word >> 24
        found = ((found * _FACTOR) & _MASK) ^ ((word * _FACTOR) & _MASK)
        at += 4
    if at < end:
        rest = np.int64(0)
        for place in range(end - at):
            rest |= np.int64(data[at + place]) << (8 * place)
        found = ((found ^ rest) * _FACTOR) & _MASK
    found ^= found >> 13
    found = (found * _FACTOR) & _MASK
    return found ^ (found >> 15)
