"""What is known of the values of rows: which typed columns can be read from them."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Annotated, Any, Literal, NamedTuple, TypeAlias

import pyarrow as pa
from pydantic import PlainSerializer, PlainValidator

from tidegate.contracts.errors import InvalidValue

TYPES: dict[str, pa.DataType] = {
    "bool": pa.bool_(),
    "int8": pa.int8(),
    "int16": pa.int16(),
    "int32": pa.int32(),
    "int64": pa.int64(),
    "float32": pa.float32(),
    "float64": pa.float64(),
    "date": pa.date32(),
    "timestamp": pa.timestamp("us", "UTC"),
    "timestamp_ntz": pa.timestamp("us"),
    "string": pa.string(),
    "json": pa.large_string(),
}
"""The types of fields, by name; `decimal(P,S)` is another one. `json` is the JSON text of any value, such as an array.
Steps pass it on as it is.

In JSON a decimal is a number, of which no digit is lost. A float is a number, or the text `NaN`, `Infinity` or
`-Infinity`. Dates and times are text of ISO 8601: a `timestamp` has its offset from UTC, a `timestamp_ntz` has none.
"""
_DECIMAL = re.compile(r"decimal\((\d+), ?(\d+)\)")
_MOST_DIGITS = 38
"""Those that a decimal has in Spark, Arrow and DuckDB; one of them is before the point."""
_NUMBERS = [type for name, type in TYPES.items() if name.startswith(("int", "float", "json"))]
_NAMES = {type: name for name, type in TYPES.items()}

Path: TypeAlias = tuple[str, ...]
"""The names that lead to a field, from the outermost on."""

Primitive: TypeAlias = Literal["bytes", "string", "int16", "int32", "int64", "float32", "float64", "uuid"]
PRIMITIVES: dict[str, pa.DataType] = {
    "bytes": pa.binary(),
    "string": pa.string(),
    "int16": pa.int16(),
    "int32": pa.int32(),
    "int64": pa.int64(),
    "float32": pa.float32(),
    "float64": pa.float64(),
    "uuid": pa.string(),
}
"""The formats of Kafka's own serializers, with the types of their columns. A UUID is text, in lower case."""


class Avro(NamedTuple):
    """Avro values in the wire format of a schema registry.

    `schema`: the reader's schema, as JSON; `schemas`: the folder or the registry that has the schemas of writers.
    """

    schema: str
    schemas: str


class Protobuf(NamedTuple):
    """Protobuf values in the wire format of a schema registry.

    `schema`: the text of the reader's `.proto` file; `message`: the full name of the message type that is read there;
    `schemas`: the folder or the registry that has the schemas of writers.
    """

    schema: str
    message: str
    schemas: str


KeyForm: TypeAlias = Primitive | Avro | Protobuf
"""The format of keys, in which expressions read them."""


HeaderForms: TypeAlias = tuple[tuple[str, Primitive], ...]
"""The names of headers, each with the format of its values."""


def struct_of_headers(forms: HeaderForms) -> pa.StructType:
    """Return the type of the column that has these headers."""
    return pa.struct([pa.field(name, PRIMITIVES[form]) for name, form in forms])


class AvroOutput(NamedTuple):
    """How values are written as Avro: the schema, as JSON, and the number under which a registry has it."""

    schema: str
    number: int


class ProtobufOutput(NamedTuple):
    """How values are written as Protobuf: the text of the `.proto` file, the full name of the message type there, and
    the number under which a registry has the schema."""

    schema: str
    message: str
    number: int


Registered: TypeAlias = Avro | AvroOutput | Protobuf | ProtobufOutput
"""Values that name their schema in a registry."""


class Values(NamedTuple):
    """The values of rows at one place of a pipeline.

    `form`: a primitive, which is the column `value`; `object`, JSON objects with the fields of `schema`; `single`, a
    bare JSON value, which is the only column of `schema`; `joined`, objects of `stream` and `table`: the last column of
    `schema` is the table's value, the others are the fields of the stream's, and `sides` says how both are written;
    `avro` and `protobuf`, records with the fields of `schema`, as `registered` says. Of `bytes` that a step has written
    `registered` says how.
    """

    form: Primitive | Literal["object", "single", "joined", "avro", "protobuf"]
    schema: pa.Schema
    registered: Registered | None = None
    sides: tuple[Values, Values] | None = None

    @classmethod
    def of_bytes(cls) -> Values:
        """Return values of which nothing is known."""
        return cls.of_primitive("bytes")

    @classmethod
    def of_primitive(cls, form: Primitive) -> Values:
        """Return values that one of Kafka's own serializers writes."""
        return cls(form, pa.schema([pa.field("value", PRIMITIVES[form])]))

    @classmethod
    def of_fields(cls, schema: pa.Schema) -> Values:
        """Return values that are JSON objects with these fields."""
        return cls("object", schema)

    @property
    def has_fields(self) -> bool:
        """Return whether each value is a record of named fields."""
        return self.form in ("object", "avro", "protobuf")

    def type_of(self, path: Sequence[str]) -> pa.DataType | None:
        """Return the type of the field to which these names lead; None if values are no objects with such a field."""
        found: pa.DataType | None = pa.struct(self.schema) if self.form == "object" else None
        for name in path:
            at = found.get_field_index(name) if found is not None and pa.types.is_struct(found) else -1
            found = found.field(at).type if found is not None and at >= 0 else None
        return found

    def check_field(self, path: Sequence[str], *, is_number: bool) -> None:
        """Raise InvalidValue if values are objects of known fields, and these names lead to none, or to no number.

        What is in a field of the type `json` is unknown.
        """
        if self.form != "object":
            return
        known = next((type for at in range(1, len(path)) if (type := self.type_of(path[:at])) == TYPES["json"]), None)
        found = known or self.type_of(path)
        if found is None:
            names = ", ".join(self.schema.names)
            raise InvalidValue(
                f"values have no field {'.'.join(path)}", f"name one of {names}; or add it to the fields of the values"
            )
        if is_number and not may_be_number(found):
            raise InvalidValue(f"field {'.'.join(path)} is no number, but {shown(found)}", "name a field of numbers")


def may_be_number(type: pa.DataType) -> bool:
    """Return whether values of a field of that type are numbers, or may be."""
    return type in _NUMBERS or bool(pa.types.is_decimal(type))


def shown(type: pa.DataType) -> str:
    """Return the type of a field as messages name it."""
    return "an object" if pa.types.is_struct(type) else _name_of(type)


def part_of(schema: pa.Schema, paths: Collection[Path]) -> pa.Schema:
    """Return the fields to which the paths lead, inside of the structs around them. A path to a struct is all of it."""
    return pa.schema(_part(schema, paths))


def _part(fields: Iterable[pa.Field], paths: Collection[Path]) -> Iterator[pa.Field]:
    for field in fields:
        inside = [path[1:] for path in paths if path[0] == field.name]
        if () in inside:
            yield field
        elif inside:
            yield field.with_type(pa.struct(list(_part(field.type, inside))))


def schema_of(fields: Mapping[str, Any]) -> pa.Schema:
    """Return the schema of fields that are written as names of types, or as fields again; raise InvalidValue."""
    return pa.schema(_fields(fields))


def _fields(fields: object) -> list[pa.Field]:
    if not isinstance(fields, Mapping) or not fields:
        raise InvalidValue("no fields are named", "write the fields with their types, such as {delay: int64}")
    return [pa.field(field_name(name), _type(name, type)) for name, type in fields.items()]


def field_name(name: object) -> str:
    """Return the name of a field. Raise InvalidValue if it is no text, blank, or has a character that SQL has not."""
    if not isinstance(name, str) or not name.strip() or "\0" in name:
        raise InvalidValue(f"{name!r} is not the name of a field", "write the field's name as text")
    return name


def _type(name: str, type: object) -> pa.DataType:
    if isinstance(type, Mapping):
        return pa.struct(_fields(type))
    found = (TYPES.get(type) or decimal_of(type)) if isinstance(type, str) else None
    if found is None:
        raise InvalidValue(
            f"field {name} has the type {type!r}, which does not exist",
            f"write one of {', '.join(TYPES)}, decimal(P,S), or {{NAME: TYPE}} for an object",
        )
    return found


def decimal_of(name: str) -> pa.DataType | None:
    """Return the decimal type of that name; None if there is none."""
    digits = _DECIMAL.fullmatch(name)
    precision, scale = map(int, digits.groups()) if digits is not None else (0, 0)
    is_known = 0 < precision <= _MOST_DIGITS and scale <= min(precision, _MOST_DIGITS - 1)
    return pa.decimal128(precision, scale) if is_known else None


def _name_of(type: pa.DataType) -> str:
    return f"decimal({type.precision},{type.scale})" if pa.types.is_decimal(type) else _NAMES[type]


def as_written(schema: pa.Schema | pa.StructType) -> dict[str, Any]:
    """Return the fields of a schema as `schema_of` reads them."""
    return {f.name: as_written(f.type) if pa.types.is_struct(f.type) else _name_of(f.type) for f in schema}


def kept_as(name: str, type: pa.DataType, *, is_exact: bool) -> pa.DataType:
    """Return the type of a field for values of that type; raise InvalidValue if JSON has none for them.

    `is_exact`: decimals stay decimals. Otherwise they are doubles: `1.5` is a decimal in SQL.
    """
    if pa.types.is_struct(type):
        inside = (pa.field(each.name, kept_as(f"{name}.{each.name}", each.type, is_exact=is_exact)) for each in type)
        return pa.struct(list(inside))
    if pa.types.is_decimal(type) and is_exact and type.scale < _MOST_DIGITS:
        return type
    if pa.types.is_timestamp(type) and type.unit != "ns":
        return pa.timestamp("us", type.tz)
    if pa.types.is_decimal(type) and type.scale > 0:
        return pa.float64()
    if pa.types.is_unsigned_integer(type) and type.bit_width < 64:
        return pa.int64()
    if type not in _NAMES:
        raise InvalidValue(
            f"field {name} would have the type {type}, which JSON values do not have",
            "convert it with CAST, such as CAST(... AS bigint), double or varchar",
        )
    return type


def _read(value: object) -> pa.Schema:
    return value if isinstance(value, pa.Schema) else schema_of(value)  # type: ignore[arg-type]  # it checks


Fields: TypeAlias = Annotated[
    pa.Schema,
    PlainValidator(_read, json_schema_input_type=dict[str, Any]),
    PlainSerializer(as_written, return_type=dict[str, Any], when_used="json"),
]
"""The fields of JSON objects: names with types, such as `{delay: int64, weather: {gust: float64}}`."""
