"""Checksums of the rows of a table, to compare tables whose rows are in another order or in several parts."""

from __future__ import annotations

import zlib
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tidegate.contracts.operator import Array
from tidegate.kernels.columns import binary_parts
from tidegate.kernels.compiled import compiled
from tidegate.kernels.hash_index import mix

_NULL = 0x5F3759DF


def sum_of_checksums(rows: pa.Table) -> int:
    """Return the sum, modulo 2**64, of the rows' checksums over all columns; it does not depend on their order."""
    whole = np.zeros(rows.num_rows, np.int64)
    for name in sorted(rows.column_names):
        _add(whole, _of_column(rows.column(name)), zlib.crc32(name.encode()))
    return int(whole.view(np.uint64).sum(dtype=np.uint64))


def _of_column(column: pa.ChunkedArray) -> Array:
    if pa.types.is_integer(column.type) or pa.types.is_boolean(column.type):
        found: Array = pc.fill_null(column.cast(pa.int64()), 0).to_numpy().copy()
    else:
        found = np.empty(len(column), np.int64)
        _hash_all(*binary_parts(column), found)
    found[np.asarray(column.is_null())] = _NULL
    return found


@compiled
def _hash_all(data: Array, starts: Array, lengths: Array, hashes: Array) -> None:
    for row in range(len(hashes)):
        found: Any = np.int64(lengths[row])
        for at in range(starts[row], starts[row] + lengths[row]):
            found = mix(found ^ np.int64(data[at]))
        hashes[row] = found


@compiled
def _add(whole: Array, column: Array, name: int) -> None:
    for row in range(len(whole)):
        whole[row] = mix(whole[row] ^ mix(column[row] ^ name))
