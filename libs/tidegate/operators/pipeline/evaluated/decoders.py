"""Chooses how the typed columns of values are read; those of a join have a value of each side."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tidegate.contracts.operator import Array
from tidegate.contracts.values import Avro, HeaderForms, KeyForm, Protobuf, Values
from tidegate.kernels.codecs.json_columns import JsonDecoder
from tidegate.kernels.codecs.port import CODE, Decoded, Decoder
from tidegate.kernels.codecs.primitives import PrimitiveDecoder
from tidegate.kernels.codecs.registered import decoder_of_registered
from tidegate.kernels.codecs.registry_format import NO_PREFIX, NULL
from tidegate.kernels.columns import binary_parts
from tidegate.kernels.record_format.named_headers import find_headers, names_of


def decoder_of(values: Values, chosen: Sequence[pa.Field]) -> Decoder:
    """Return the decoder of these fields of the values."""
    if isinstance(values.registered, Avro | Protobuf):
        return decoder_of_registered(values.registered, pa.schema(chosen))
    if values.form == "joined":
        return _JoinedDecoder(values, chosen)
    if values.form in ("object", "single"):
        return JsonDecoder(pa.schema(chosen))
    return PrimitiveDecoder(values.form, "value")  # type: ignore[arg-type]  # what is left are the primitives


def key_decoder_of(form: KeyForm, chosen: Sequence[pa.Field]) -> Decoder:
    """Return the decoder of the column of keys, or of the part of it that is chosen."""
    if isinstance(form, str):
        return PrimitiveDecoder(form, "key")
    return _RecordKeyDecoder(form, chosen)


def _with_part(code: Array, reasons: list[str], wrong: Array, causes: Sequence[str]) -> Array:
    """Return the codes with those of a further part, where none before it was wrong; its causes become reasons."""
    found = np.where((code == 0) & (wrong > 0), len(reasons) + wrong, code)
    reasons += causes
    return found


class _RecordKeyDecoder:
    """Reads keys that are records as a struct. A null is a null."""

    def __init__(self, form: Avro | Protobuf, chosen: Sequence[pa.Field]) -> None:
        self.schema = pa.schema(chosen)
        self._decoder = decoder_of_registered(form, pa.schema([inside for field in chosen for inside in field.type]))

    def columns(self, data: Array, start: Array, length: Array) -> Decoded:
        """Read the keys `data[start : start + length]` (length -1: null)."""
        decoded = self._decoder.columns(data, start, length)
        null = pa.array(decoded.code != 0)
        code = np.where(decoded.code == NULL, 0, decoded.code)
        records = pa.StructArray.from_arrays(decoded.columns, fields=list(self._decoder.schema), mask=null)
        return Decoded([records], code, [reason.replace("value", "key", 1) for reason in decoded.reasons])


class HeadersDecoder:
    """Reads chosen headers of records as a struct. One that a record does not have is null."""

    def __init__(self, forms: HeaderForms, chosen: Sequence[pa.Field]) -> None:
        [self._column] = chosen
        self.schema, known = pa.schema(chosen), dict(forms)
        self._names = names_of([field.name for field in self._column.type])
        self._decoders = [PrimitiveDecoder(known[field.name], f"header {field.name}") for field in self._column.type]

    def columns(self, data: Array, start: Array, length: Array) -> Decoded:
        """Read the blocks of headers `data[start : start + length]` (length 0 or -1: none)."""
        code, reasons, found = np.zeros(len(start), CODE), list[str](), list[pa.Array]()
        places = zip(*find_headers(data, start, length, self._names), strict=True)
        for decoder, (begin, size) in zip(self._decoders, places, strict=True):
            decoded = decoder.columns(data, begin, size)
            code = _with_part(code, reasons, decoded.code, decoded.reasons)
            found += decoded.columns
        headers = pa.StructArray.from_arrays(found, fields=list(self._column.type), mask=pa.array(code != 0))
        return Decoded([headers], code, reasons)


class _JoinedDecoder:
    """Reads fields of the stream's values, and those of the table's as a column with the name of the table."""

    def __init__(self, values: Values, chosen: Sequence[pa.Field]) -> None:
        assert values.sides is not None
        [*_, table] = values.schema
        self._table = table.name
        self.schema = pa.schema(chosen)
        parts = {
            "stream": [field for field in chosen if field.name != table.name],
            "table": [inside for field in chosen if field.name == table.name for inside in field.type],
        }
        sides = zip(parts.items(), values.sides, strict=True)
        self._sides = [
            _SideOfJoin(part, side) if side.form == "joined" else _Side(name, part, side)
            for (name, part), side in sides
            if part
        ]
        self._objects = JsonDecoder(pa.schema([field for side in self._sides for field in side.given]))

    def columns(self, data: Array, start: Array, length: Array) -> Decoded:
        """Read the values `data[start : start + length]` (length -1: null)."""
        decoded = self._objects.columns(data, start, length)
        given = dict(zip(self._objects.schema.names, decoded.columns, strict=True))
        code, reasons, found = decoded.code.astype(CODE), [*decoded.reasons], dict[str, pa.Array]()
        for side in self._sides:
            value, wrong, causes = side.read(given)
            code = _with_part(code, reasons, wrong, causes)
            if side.name == "table":
                found[self._table] = value
            else:
                found |= zip((field.name for field in value.type), value.flatten(), strict=True)
        columns = [found[name] for name in self.schema.names]
        if code.any():
            columns = [pc.if_else(pa.array(code == 0), column, pa.scalar(None, column.type)) for column in columns]
        return Decoded(columns, code, reasons)


class _SideOfJoin:
    """The value of a stream that another join has made. `given`: the member of the object where it is."""

    name = "stream"
    given = (pa.field("stream", pa.large_string()),)

    def __init__(self, chosen: Sequence[pa.Field], values: Values) -> None:
        self._decoder = _JoinedDecoder(values, chosen)

    def read(self, given: Mapping[str, pa.Array]) -> tuple[pa.StructArray, Array, Sequence[str]]:
        """Return the fields, a code per row as a decoder does, and the reasons."""
        decoded = self._decoder.columns(*binary_parts(given[self.name]))
        fields = pa.StructArray.from_arrays(decoded.columns, fields=list(self._decoder.schema))
        return fields, decoded.code, decoded.reasons


_NO_JSON = 2
"""The code of a side that should be JSON and is not, behind NULL."""


class _Side:
    """The value of one side: JSON, or base64 of other bytes, which are for a decoder or for nobody.

    `given`: the members of the object where it may be.
    """

    def __init__(self, name: str, chosen: Sequence[pa.Field], values: Values) -> None:
        self.name = name
        self._decoder = None if values.registered is None else decoder_of(values, chosen)
        type = pa.struct(chosen) if self._decoder is None else pa.large_string()
        self.given = [pa.field(name, type), pa.field(f"{name}_bytes", pa.binary())]

    def read(self, given: Mapping[str, pa.Array]) -> tuple[pa.StructArray, Array, Sequence[str]]:
        """Return the fields, a code per row as a decoder does, and the reasons."""
        value, written = given[self.name], given[f"{self.name}_bytes"]
        has_value, has_bytes = (each.is_valid().to_numpy(zero_copy_only=False) for each in (value, written))
        if self._decoder is None:
            code = np.where(has_bytes, _NO_JSON, np.where(has_value, 0, NULL)).astype(CODE)
            return value, self._matched(code), [self._cause(reason) for reason in ("value: null", "value: not JSON")]
        decoded = self._decoder.columns(*binary_parts(written))
        absent = decoded.code == NULL
        code = self._matched(decoded.code)
        code[absent & has_value] = NO_PREFIX
        fields = pa.StructArray.from_arrays(decoded.columns, fields=list(self._decoder.schema), mask=pa.array(absent))
        return fields, code, [self._cause(reason) for reason in decoded.reasons]

    def _matched(self, code: Array) -> Array:
        """Return the codes where the null of a table is no reason: no version matched."""
        return np.where(code == NULL, 0, code) if self.name == "table" else code

    def _cause(self, reason: str) -> str:
        return reason if self.name == "stream" else reason.replace("value", "table", 1)
