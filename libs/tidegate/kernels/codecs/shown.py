"""Keys and values as views show them: one column of numbers or of records, of types that Spark and DuckDB have."""

from __future__ import annotations

from functools import lru_cache

import pyarrow as pa
import pyarrow.compute as pc

from tidegate.contracts.config.option_types import ShownAs
from tidegate.contracts.values import Registered
from tidegate.kernels.codecs.port import Decoder
from tidegate.kernels.codecs.primitives import PrimitiveDecoder
from tidegate.kernels.codecs.registered import columns_of, decoder_of_registered
from tidegate.kernels.columns import binary_parts, in_one


class Shown:
    """Shows byte strings of one typed format. What is not of that format is null."""

    def __init__(self, form: ShownAs) -> None:
        self._decoder = _decoder(form)
        self._is_record = isinstance(form, Registered)
        schema = self._decoder.schema
        self._own: pa.DataType = pa.struct(list(schema)) if self._is_record else schema.types[0]
        self.type = shared_type(self._own)

    def column(self, values: pa.Array | pa.ChunkedArray) -> pa.Array:
        """Return the values as a column of `type`."""
        found = in_one(values) if isinstance(values, pa.ChunkedArray) else values
        decoded = self._decoder.columns(*binary_parts(found.cast(pa.binary())))
        if not self._is_record:
            return decoded.columns[0].cast(self.type)
        unreadable = pa.array(decoded.code != 0)
        records = pa.StructArray.from_arrays(decoded.columns, fields=list(self._own), mask=unreadable)
        return pc.cast(records, self.type, safe=False)


@lru_cache(maxsize=64)
def shown(form: ShownAs) -> Shown:
    """Return what shows values of the typed format. Raise InvalidValue for a wrong schema; MissingExtra."""
    return Shown(form)


def _decoder(form: ShownAs) -> Decoder:
    if isinstance(form, Registered):
        return decoder_of_registered(form, columns_of(form))
    return PrimitiveDecoder(form, "value")  # type: ignore[arg-type]  # typed formats are primitives


def shared_type(type: pa.DataType) -> pa.DataType:
    """Return the type that Spark, too, has for values of that type: without unsigned numbers, in microseconds."""
    if pa.types.is_struct(type):
        return pa.struct([field.with_type(shared_type(field.type)) for field in type])
    if pa.types.is_timestamp(type):
        return pa.timestamp("us", type.tz)
    if pa.types.is_time(type):
        return pa.time64("us")
    return _SHARED.get(type, type)


_SHARED = {pa.uint32(): pa.int64(), pa.uint64(): pa.decimal128(20), pa.large_string(): pa.string()}
