"""Joiner functions for tests and scenarios."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc


def dashed(stream: pa.RecordBatch, table: pa.RecordBatch) -> pa.Array:
    """Join both values with a dash; a missing value becomes `null`."""
    missing = pa.scalar(b"null")
    values = (pc.fill_null(side["value"], missing) for side in (stream, table))
    return pc.binary_join_element_wise(*values, b"-")
