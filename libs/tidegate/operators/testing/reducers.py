"""Functions that merge values, for tests of windows."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc


def total_and_most(left: pa.RecordBatch, right: pa.RecordBatch) -> pa.RecordBatch:
    """Add the numbers `n`, a missing one as 0, and wrap around; keep the largest of the numbers `most`, if any."""
    total = pc.add(pc.fill_null(left["n"], 0), pc.fill_null(right["n"], 0))
    return pa.record_batch({"n": total, "most": pc.max_element_wise(left["most"], right["most"])})
