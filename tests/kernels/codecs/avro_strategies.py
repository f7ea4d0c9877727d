"""Schemas of Avro and values of them, and what their columns must be, by fastavro."""

from __future__ import annotations

import struct
from collections.abc import Callable
from datetime import UTC, date, datetime
from decimal import Decimal
from io import BytesIO
from itertools import count
from typing import Any
from uuid import UUID

import fastavro
import numpy as np
import orjson
from hypothesis import strategies as st

from tidegate.kernels.codecs.avro.decoder import AvroDecoder
from tidegate.kernels.codecs.avro.schemas import logical, name_of, nullable

SCALARS: list[Any] = ["boolean", "int", "long", "float", "double", "string", "bytes"]
LOGICAL: list[Any] = [
    {"type": "bytes", "logicalType": "decimal", "precision": 20, "scale": 3},
    {"type": "string", "logicalType": "uuid"},
]
TIMES: list[Any] = [
    {"type": "int", "logicalType": "date"},
    {"type": "int", "logicalType": "time-millis"},
    {"type": "long", "logicalType": "time-micros"},
    {"type": "long", "logicalType": "timestamp-millis"},
    {"type": "long", "logicalType": "timestamp-micros"},
    {"type": "long", "logicalType": "local-timestamp-millis"},
]


@st.composite
def schemas(draw: st.DrawFn, times: bool = True) -> dict[str, Any]:
    """A record with up to five fields of any types."""
    numbers, scalars = count(), [*SCALARS, *LOGICAL, *(TIMES if times else [])]

    def named(kind: str, **more: Any) -> dict[str, Any]:
        return {"type": kind, "name": f"{kind}{next(numbers)}", **more}

    def type_of(depth: int) -> Any:
        deeper = ["record", "array", "map", "optional", "union"] if depth else []
        kind = draw(st.sampled_from([*["scalar"] * 4, "fixed", "enum", *deeper]))
        return draw(st.sampled_from(scalars)) if kind == "scalar" else makers[kind](depth - 1)

    def optional(depth: int) -> Any:
        inner = type_of(0) if draw(st.booleans()) else record(depth)
        return draw(st.permutations(["null", inner]))

    def record(depth: int) -> dict[str, Any]:
        names = draw(st.lists(st.sampled_from("abcdef"), min_size=1, max_size=5, unique=True))
        return named("record", fields=[{"name": name, "type": type_of(depth)} for name in names])

    makers: dict[str, Callable[[int], Any]] = {
        "fixed": lambda _: named("fixed", size=draw(st.integers(1, 4))),
        "enum": lambda _: named("enum", symbols=["A", "B", "C"][: draw(st.integers(1, 3))]),
        "record": record,
        "array": lambda depth: {"type": "array", "items": type_of(depth)},
        "map": lambda depth: {"type": "map", "values": type_of(depth)},
        "optional": optional,
        "union": lambda _: ["string", "null", "long"],
    }
    return record(2)


def values(type: Any) -> st.SearchStrategy[Any]:
    """Values of a type, as fastavro writes them."""
    meaning = logical(type)
    if meaning is not None:
        return _OF_LOGICAL[meaning]
    match name_of(type):
        case "union":
            return st.one_of([values(each) for each in type])
        case "record":
            return st.fixed_dictionaries({field["name"]: values(field["type"]) for field in type["fields"]})
        case "array":
            return st.lists(values(type["items"]), max_size=3)
        case "map":
            return st.dictionaries(st.text(max_size=2), values(type["values"]), max_size=2)
        case "enum":
            return st.sampled_from(type["symbols"])
        case "fixed":
            return st.binary(min_size=type["size"], max_size=type["size"])
    return _OF_SCALARS[name_of(type)]


_FINITE: Any = {"allow_nan": False, "allow_infinity": False}
_OF_SCALARS: dict[str, st.SearchStrategy[Any]] = {
    "null": st.none(),
    "boolean": st.booleans(),
    "int": st.integers(-(2**31), 2**31 - 1),
    "long": st.integers(-(2**63), 2**63 - 1),
    "float": st.floats(width=32, **_FINITE),
    "double": st.floats(**_FINITE),
    "string": st.text(max_size=5),
    "bytes": st.binary(max_size=5),
}
_INSTANTS = st.datetimes(datetime(1900, 1, 1), datetime(2100, 1, 1))
_MILLIS = _INSTANTS.map(lambda each: each.replace(microsecond=each.microsecond // 1_000 * 1_000))
_OF_LOGICAL: dict[str, st.SearchStrategy[Any]] = {
    "decimal": st.integers(-(10**20) + 1, 10**20 - 1).map(lambda each: Decimal(each).scaleb(-3)),
    "uuid": st.uuids(),
    "date": st.dates(date(1900, 1, 1), date(2100, 1, 1)),
    "time-millis": _MILLIS.map(datetime.time),
    "time-micros": st.times(),
    "timestamp-millis": _MILLIS.map(lambda each: each.replace(tzinfo=UTC)),
    "timestamp-micros": _INSTANTS.map(lambda each: each.replace(tzinfo=UTC)),
    "local-timestamp-millis": _MILLIS,
}


def written(schema: Any, value: Any, number: int = 17) -> bytes:
    """The value in the wire format of a registry."""
    out = BytesIO()
    fastavro.schemaless_writer(out, fastavro.parse_schema(schema), value)
    return b"\0" + struct.pack(">I", number) + out.getvalue()


class Known:
    """Schemas by number, and those to which they may refer."""

    def __init__(self, schemas: dict[int, Any], *imports: Any) -> None:
        self._texts = {number: orjson.dumps(schema).decode() for number, schema in schemas.items()}
        self._imports = {str(place): orjson.dumps(each).decode() for place, each in enumerate(imports)}

    def schema(self, number: int) -> str | None:
        return self._texts.get(number)

    def imports(self, number: int) -> dict[str, str]:
        return self._imports


def decoded(decoder: AvroDecoder, given: list[bytes | None]) -> list[Any]:
    """The rows of the values as mappings; the reason where a value was refused."""
    length = np.array([-1 if value is None else len(value) for value in given], np.int64)
    start = np.cumsum(np.maximum(length, 0)) - np.maximum(length, 0)
    data = np.frombuffer(b"".join(value or b"" for value in given), np.uint8)
    found = decoder.columns(data, start, length)
    for column in found.columns:
        column.validate(full=True)
    rows = [dict(zip(decoder.schema.names, row, strict=True)) for row in zip(*map(_listed, found.columns), strict=True)]
    reasons = [found.reasons[code - 1] if code else None for code in found.code.tolist()]
    assert all(set(row.values()) <= {None} for row, reason in zip(rows, reasons, strict=True) if reason)
    return [reason or row for row, reason in zip(rows, reasons, strict=True)]


def _listed(column: Any) -> list[Any]:
    return column.to_pylist()


def read_by_oracle(value: bytes, writer: Any, reader: Any = None) -> Any:
    """The value as fastavro reads it."""
    parsed = None if reader is None else fastavro.parse_schema(reader)
    return fastavro.schemaless_reader(BytesIO(value[5:]), fastavro.parse_schema(writer), parsed)


def in_columns(type: Any, value: Any) -> Any:
    """What a column must hold where fastavro reads this value of that type."""
    inner = nullable(type)
    if value is None:
        return None
    if inner is not None:
        return in_columns(inner, value)
    kind = name_of(type)
    if kind == "record":
        return {field["name"]: in_columns(field["type"], value[field["name"]]) for field in type["fields"]}
    if kind in ("array", "map", "union"):
        return orjson.dumps(value, default=_as_json).decode()
    if isinstance(value, UUID):
        return str(value)
    if kind in ("bytes", "fixed") and isinstance(value, str):  # fastavro leaves a default as the schema has it
        return value.encode("latin-1")
    if kind == "float":  # fastavro promotes an int to 64 bits: a float has 32
        return struct.unpack("f", struct.pack("f", value))[0]
    return value.replace(tzinfo=None) if isinstance(value, datetime) else value


def _as_json(value: Any) -> Any:
    return value.decode("latin-1") if isinstance(value, bytes) else str(value)
