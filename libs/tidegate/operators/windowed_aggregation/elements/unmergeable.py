"""Records whose values cannot be merged by the function of a window: their code, and their causes."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from tidegate.kernels.codecs.port import Decoded
from tidegate.operators.late_and_rejected import COUNT, LATE, NO_NUMBER, Unaccepted

UNMERGEABLE = NO_NUMBER
"""The code of a record whose value cannot be merged; `with_causes` says why."""


def with_causes(rejected: pa.Table, unaccepted: Unaccepted, read: Decoded) -> pa.Table:
    """Return the rejected records of a batch with the reasons why values cannot be merged."""
    code = unaccepted.code[: unaccepted.numbers[COUNT]]
    row = unaccepted.row[: len(code)][code != LATE]
    unmergeable = code[code != LATE] == UNMERGEABLE
    if not unmergeable.any():
        return rejected
    causes = np.array(rejected["cause"].to_pylist(), object)
    causes[unmergeable] = read.causes(row[unmergeable])
    at = rejected.schema.get_field_index("cause")
    field = rejected.schema.field(at)
    return rejected.set_column(at, field, pa.array(causes, pa.string()).cast(field.type))
