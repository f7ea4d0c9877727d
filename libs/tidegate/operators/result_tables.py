"""The Arrow schemas of the tables in a StepResult."""

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
_CODE = pa.int32()  # the rows of a batch may have a cause each: functions of the user's own say why they fail
_CAUSE = pa.dictionary(_CODE, pa.string())
_OPS = pa.array(["put", "delete"])

EMISSIONS = pa.schema(_RECORD | {"cause": _CAUSE})
LATE_AND_REJECTED = pa.schema(_RECORD | {"cause": _CAUSE, "lateness": pa.int64(), "bound": pa.int64()})

# made once: most batches have such tables, and Arrow takes longer to make one than to fill a small one
NO_EMISSIONS = EMISSIONS.empty_table()
NONE_REFUSED = LATE_AND_REJECTED.empty_table()


def changes_schema(columns: Iterable[pa.Field] = ()) -> pa.Schema:
    """Return the schema of a changelog: the common columns, then the operator's own `columns`."""
    return pa.schema([pa.field("op", pa.string()), *pa.schema(_RECORD), *columns])


def dictionary_column(codes: Array, texts: pa.Array) -> pa.Array:
    """Return the text of each code, as a dictionary array; a code is an index into `texts`."""
    return pa.DictionaryArray.from_arrays(pa.array(codes, _CODE), texts)


def ops(gone: Array) -> pa.Array:
    """Return the changelog operation per row: `delete` where `gone` is true, otherwise `put`."""
    return _OPS.take(pa.array(gone.astype("int8")))
