"""Functions over record batches, for tests of pipelines."""

from __future__ import annotations

from functools import partial

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tidegate.operators.options.user_functions import BatchFunction

_N = pa.schema({"n": pa.int64()})


@partial(BatchFunction, emits=None)
def other_than_a(rows: pa.RecordBatch) -> pa.Array:
    """Choose the rows whose key is not `a`."""
    return pc.not_equal(rows["key"], pa.scalar(b"a"))


@partial(BatchFunction, emits=_N)
def measured(rows: pa.RecordBatch) -> pa.RecordBatch:
    """Make the length of the key of each row, null without a key. Raise ValueError if the key of one is `ab`."""
    if b"ab" in rows["key"].to_pylist():
        raise ValueError("ab")
    return pa.record_batch({"n": pc.binary_length(rows["key"]).cast(pa.int64())})


@partial(BatchFunction, emits=_N)
def repeated(rows: pa.RecordBatch) -> pa.RecordBatch:
    """Make one row of each for every byte of its key, modulo 3, and number them."""
    counts = np.asarray(pc.binary_length(rows["key"]).fill_null(0), np.int64) % 3
    row = np.repeat(np.arange(rows.num_rows), counts)
    first = np.cumsum(counts) - counts
    return pa.record_batch({"row": row, "n": np.arange(len(row)) - first[row]})
