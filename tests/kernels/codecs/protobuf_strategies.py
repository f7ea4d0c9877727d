"""Schemas of Protobuf and values of them, and what their columns must be, by Google's library."""

from __future__ import annotations

import struct
from collections.abc import Collection
from typing import Any

import numpy as np
import orjson
from google.protobuf.json_format import MessageToDict, SerializeToJsonError
from google.protobuf.message import DecodeError
from google.protobuf.message_factory import GetMessageClass
from hypothesis import strategies as st

from tidegate.contracts.values import part_of
from tidegate.kernels.codecs.protobuf.decoder import ProtobufDecoder
from tidegate.kernels.codecs.protobuf.schemas import columns_of, message_of, read_schema

SCALARS = (
    *("double", "float", "int64", "uint64", "int32", "fixed64", "fixed32", "bool", "string", "bytes"),
    *("uint32", "sfixed32", "sfixed64", "sint32", "sint64"),
)
NUMBERS = (1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 15, 16, 17, 2047, 2048, 536_870_911)


@st.composite
def schemas(draw: st.DrawFn) -> str:
    """The text of a file with the message R, of up to five fields of any types."""
    syntax = draw(st.sampled_from(["proto2", "proto3"]))
    enum = "enum Color { RED = 0; GREEN = 1; DEEP = -5; }"
    inner = [f"message M{at} {{ {_fields(draw, syntax, at)} }}" for at in range(2)]
    return f'syntax = "{syntax}"; {enum} message R {{ {_fields(draw, syntax, 2)} }} {" ".join(inner)}'


def _fields(draw: st.DrawFn, syntax: str, messages: int) -> str:
    """Up to five fields; those of messages are of M0 up to M(messages - 1), or of R."""
    numbers = iter(draw(st.permutations(NUMBERS)))
    kinds = ["scalar", "scalar", "optional", "repeated", "map", "oneof", "enum", "message"]
    known = ["R", *(f"M{at}" for at in range(messages))]
    label = "optional " if syntax == "proto2" else ""

    def any_type() -> str:
        return draw(st.sampled_from([*SCALARS, "Color", draw(st.sampled_from(known))]))

    def field(at: int) -> str:
        name = f"f{at}"
        match draw(st.sampled_from(kinds)):
            case "scalar":
                return f"{label}{draw(st.sampled_from(SCALARS))} {name} = {next(numbers)};"
            case "optional":
                return f"optional {draw(st.sampled_from(SCALARS))} {name} = {next(numbers)};"
            case "repeated":
                type, packed = any_type(), draw(st.sampled_from(["", " [packed = true]", " [packed = false]"]))
                packed = "" if type in ("string", "bytes", *known) else packed
                return f"repeated {type} {name} = {next(numbers)}{packed};"
            case "map":
                return f"map<string, {any_type()}> {name} = {next(numbers)};"
            case "oneof":
                members = [f"{any_type()} {name}{part} = {next(numbers)};" for part in "abc"]
                return f"oneof {name} {{ {' '.join(members)} }}"
            case "enum":
                return f"{label}Color {name} = {next(numbers)};"
        return f"{label}{draw(st.sampled_from(known))} {name} = {next(numbers)};"

    return " ".join(field(at) for at in range(draw(st.integers(1, 3))))


_OF_PYTHON: dict[int, st.SearchStrategy[Any]] = {
    1: st.integers(-(2**31), 2**31 - 1),
    2: st.integers(-(2**63), 2**63 - 1),
    3: st.integers(0, 2**32 - 1),
    4: st.integers(0, 2**64 - 1),
    5: st.floats(),
    6: st.floats(width=32),
    7: st.booleans(),
    8: st.sampled_from([0, 1, -5]),
}
"""Values by the numbers that descriptors have for Python's types."""
_TEXT, _BYTES, _STRING_TYPE = st.text(max_size=5), st.binary(max_size=5), 9


def message_class(schema: str, name: str = "R") -> Any:
    return GetMessageClass(message_of(read_schema(schema), name))


def fill(draw: Any, message: Any, depth: int = 3) -> Any:
    """Set some fields of the message."""
    for field in message.DESCRIPTOR.fields:
        if not draw(st.booleans()):
            continue
        if field.message_type is not None and field.message_type.GetOptions().map_entry:
            for key in draw(st.lists(_TEXT, max_size=2)):
                _fill_entry(draw, getattr(message, field.name), field.message_type.fields_by_name["value"], key, depth)
        elif field.message_type is None and field.is_repeated:
            getattr(message, field.name).extend(draw(st.lists(_scalars(field), max_size=3)))
        elif field.message_type is None:
            setattr(message, field.name, draw(_scalars(field)))
        elif depth:
            part = getattr(message, field.name)
            target = part.add() if field.is_repeated else part
            target.SetInParent()
            fill(draw, target, depth - 1)
    return message


def _fill_entry(draw: Any, entries: Any, field: Any, key: str, depth: int) -> None:
    if field.message_type is None:
        entries[key] = draw(_scalars(field))
    elif depth:
        fill(draw, entries[key], depth - 1)


def _scalars(field: Any) -> st.SearchStrategy[Any]:
    if field.cpp_type == _STRING_TYPE:
        return _TEXT if field.type == _STRING_TYPE else _BYTES
    return _OF_PYTHON[field.cpp_type]


@st.composite
def bodies(draw: st.DrawFn, schema: str) -> bytes:
    """Values, one after the other: the last of a field counts, and messages are merged."""
    made = message_class(schema)
    count = draw(st.integers(1, 2))
    return b"".join(fill(draw, made()).SerializeToString() for _ in range(count))


@st.composite
def occurrences(draw: st.DrawFn, message: Any, depth: int = 2) -> bytes:
    """Fields of the message in any order, each any number of times, well formed and with any content."""
    numbers = st.sampled_from([field.number for field in message.fields])
    found = b""
    for number in draw(st.lists(numbers, max_size=6)):
        field = message.fields_by_number[number]
        inner = field.message_type
        if inner is not None and depth and field.type == _GROUP_TYPE:
            found += _tag(number, 3) + draw(occurrences(inner, depth - 1)) + _tag(number, 4)
        elif inner is not None and depth:
            found += _tag(number, 2) + _sized(draw(occurrences(inner, depth - 1)))
        else:
            found += draw(_single_field(number, _WIRES[field.type]))
    return found


@st.composite
def _single_field(draw: st.DrawFn, number: int, likely: int) -> bytes:
    """A field, now and then of another wire type than its own."""
    wire = draw(st.sampled_from([likely] * 5 + [0, 1, 2, 5]))
    match wire:
        case 0:
            content = _varint(draw(st.integers(0, 5) | st.integers(0, 2**64 - 1)))
        case 2:
            content = _sized(draw(_BYTES | _TEXT.map(str.encode)))
        case _:
            size = 8 if wire == 1 else 4
            content = draw(st.binary(min_size=size, max_size=size))
    return _tag(number, wire) + content


_GROUP_TYPE = 10
_WIRES = {**dict.fromkeys((1, 6, 16), 1), **dict.fromkeys((2, 7, 15), 5), **dict.fromkeys((9, 10, 11, 12), 2)}
_WIRES |= dict.fromkeys((3, 4, 5, 8, 13, 14, 17, 18), 0)
"""The wire types of fields by the numbers that descriptors have for their types."""


def _tag(number: int, wire: int) -> bytes:
    return _varint(number << 3 | wire)


def _sized(content: bytes) -> bytes:
    return _varint(len(content)) + content


def _varint(number: int) -> bytes:
    found = bytearray()
    while number > 127:
        found.append(number & 127 | 128)
        number >>= 7
    return bytes([*found, number])


def in_wire_format(body: bytes, number: int = 17, path: bytes = b"\0") -> bytes:
    """The value as a registry's serializer writes it."""
    return b"\0" + struct.pack(">I", number) + path + body


class Texts:
    """Schemas by number."""

    def __init__(self, texts: dict[int, str]) -> None:
        self._texts = texts

    def schema(self, number: int) -> str | None:
        return self._texts.get(number)

    def imports(self, number: int) -> dict[str, str]:
        return {}


def reading(schema: str, *wanted: str, writers: dict[int, str] | None = None) -> ProtobufDecoder:
    """A decoder of these paths of R, which values of schema 17 are by default."""
    columns = columns_of(message_of(read_schema(schema), "R"))
    chosen = part_of(columns, [tuple(path.split(".")) for path in wanted or columns.names])
    return ProtobufDecoder(schema, "R", chosen, Texts({17: schema} if writers is None else writers))


def read_by_oracle(schema: str, body: bytes, wanted: Collection[str] | None = None) -> dict[str, Any] | None:
    """What the wanted columns must hold (None: all); None if Google's library refuses the value."""
    try:
        message = message_class(schema).FromString(body)
        for field in message.DESCRIPTOR.fields if wanted is not None else ():
            if field.name not in wanted:
                message.ClearField(field.name)
        _check_text(message)
        found = _in_columns(message, MessageToDict(message, True, True), ())
        return {name: value for name, value in found.items() if wanted is None or name in wanted}
    except (DecodeError, SerializeToJsonError, UnicodeDecodeError):
        return None


def _check_text(message: Any) -> None:
    """Raise UnicodeDecodeError if text is no UTF-8: of proto2 the library returns it as bytes."""
    for field, value in message.ListFields():
        values = [*value.values()] if hasattr(value, "values") else value if field.is_repeated else [value]
        for each in values:
            if hasattr(each, "ListFields"):
                _check_text(each)
            elif field.type == field.TYPE_STRING and isinstance(each, bytes):
                each.decode()


def _in_columns(message: Any, json: Any, around: tuple[str, ...]) -> dict[str, Any]:
    around = (*around, message.DESCRIPTOR.full_name)
    return {field.name: _in_column(message, field, json, around) for field in message.DESCRIPTOR.fields}


def _in_column(message: Any, field: Any, json: Any, around: tuple[str, ...]) -> Any:
    inner = field.message_type
    if field.is_repeated or (inner is not None and (inner.full_name in around or not inner.fields)):
        return orjson.dumps(json[field.name]).decode() if field.name in json else None
    if field.has_presence and not message.HasField(field.name):
        return None
    value = getattr(message, field.name)
    if inner is not None:
        return _in_columns(value, json[field.name], around)
    if field.enum_type is not None:
        found = field.enum_type.values_by_number.get(value)
        return str(value) if found is None else found.name
    return value


def decoded(decoder: ProtobufDecoder, given: list[bytes | None]) -> list[Any]:
    """The rows of the values as mappings; the reason where a value was refused."""
    length = np.array([-1 if value is None else len(value) for value in given], np.int64)
    start = np.cumsum(np.maximum(length, 0)) - np.maximum(length, 0)
    found = decoder.columns(np.frombuffer(b"".join(value or b"" for value in given), np.uint8), start, length)
    for column in found.columns:
        column.validate(full=True)
    columns = [column.to_pylist() for column in found.columns]
    rows = [dict(zip(decoder.schema.names, row, strict=True)) for row in zip(*columns, strict=True)]
    reasons = [found.reasons[code - 1] if code else None for code in found.code.tolist()]
    assert all(set(row.values()) <= {None} for row, reason in zip(rows, reasons, strict=True) if reason)
    return [reason or row for row, reason in zip(rows, reasons, strict=True)]
