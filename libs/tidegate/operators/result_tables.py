"""The columns of what a step gives back."""

from __future__ import annotations

from collections.abc import Iterable

import pyarrow as pa

from tidegate.contracts.operator import Array

_RECORD = {
    "key": pa.binary(),
    "value": pa.binary(),
    "headers": pa.binary(),
    "timestamp": pa.int64(),
    "offset": pa.int64(),
}
_CAUSE = pa.dictionary(pa.int8(), pa.string())
_OPS = pa.array(["put", "delete"])

EMISSIONS = pa.schema(_RECORD | {"cause": _CAUSE})
REFUSED = pa.schema(_RECORD | {"cause": _CAUSE, "lateness": pa.int64(), "bound": pa.int64()})


def changes_schema(columns: Iterable[pa.Field] = ()) -> pa.Schema:
    """The schema of a changelog, with the operator's own columns."""
    return pa.schema([pa.field("op", pa.string()), *pa.schema(_RECORD), *columns])


def words(codes: Array, texts: pa.Array) -> pa.Array:
    """The text of each code."""
    return pa.DictionaryArray.from_arrays(pa.array(codes, pa.int8()), texts)


def ops(gone: Array) -> pa.Array:
    """`delete` where a slot is gone, `put` elsewhere."""
    return _OPS.take(pa.array(gone.astype("int8")))
