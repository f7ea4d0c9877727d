"""Avro schemas: what their types are as Arrow columns.

fastavro reads them, so that names and defaults are checked as Avro's specification says. What has no column of its own
(arrays, maps, and unions of several types) is the column of its JSON text.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Any, NamedTuple, TypeAlias

import pyarrow as pa

from tidegate.contracts.errors import InvalidValue
from tidegate.contracts.extras import require
from tidegate.kernels.codecs.avro.references import parsed

Type: TypeAlias = "str | Mapping[str, Any] | list[Any]"
"""A type as fastavro has it: a name, a mapping with `type`, or the list of a union's types."""

_SIZES = 2**31
"""The sizes of fixed values: Arrow's columns have no longer ones."""
_WRITE = "write a record, such as {type: record, name: Flight, fields: [{name: delay, type: int}]}"
_DEFINE = "define it where the schema first names it"


class Schema(NamedTuple):
    """A schema of records. `named`: the types with names, by their full names; `text`: its JSON and that of imports."""

    record: Mapping[str, Any]
    named: Mapping[str, Type]
    text: str

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Schema) and self.text == other.text

    def __hash__(self) -> int:
        return hash(self.text)

    def resolved(self, type: Type) -> Type:
        """Return the type, with the definition in place of a name."""
        return self.named.get(type, type) if isinstance(type, str) else type


@lru_cache(maxsize=1024)
def read_schema(text: str, imports: tuple[str, ...] = ()) -> Schema:
    """Return the schema of a JSON text. Raise InvalidValue if it is none, or not of records; MissingExtra.

    `imports`: the texts of schemas that may define types to which it refers.
    """
    require("fastavro")
    from fastavro.schema import SchemaParseException, UnknownType

    try:
        found, named = parsed(text, imports)
    except UnknownType as error:
        raise InvalidValue(f"not a schema of Avro: type {error.name} is not defined", _DEFINE) from None
    except (ValueError, KeyError, TypeError, AttributeError, SchemaParseException) as error:
        raise InvalidValue(f"not a schema of Avro: {error}", _WRITE) from None
    if not isinstance(found, Mapping) or found.get("type") not in ("record", "error"):
        raise InvalidValue("not the schema of a record", _WRITE)
    _check_named(named)
    return Schema(found, named, "\n".join([text, *imports]))


def _check_named(named: Mapping[str, Any]) -> None:
    """Raise InvalidValue if the size of a fixed is no number of bytes, or the names of fields are not distinct texts.

    fastavro does not check these.
    """
    for name, type in named.items():
        size, known = type.get("size"), set[str]()
        if name_of(type) == "fixed" and not (isinstance(size, int) and 0 <= size < _SIZES):
            raise InvalidValue(f"{name} has {size} bytes", f"write a size from 0 to {_SIZES - 1}")
        for field in type.get("fields", ()):
            if not isinstance(field["name"], str) or field["name"] in known:
                raise InvalidValue(f"{name} has the field {field['name']!r}", "give each field a name of its own")
            known.add(field["name"])


def columns_of(schema: Schema) -> pa.Schema:
    """Return the columns of the fields. Raise InvalidValue for a field whose type contains itself."""
    return pa.schema(_fields(schema, schema.record, frozenset({schema.record["name"]})))


def _fields(schema: Schema, record: Mapping[str, Any], around: frozenset[str]) -> list[pa.Field]:
    return [_field(schema, field["name"], field["type"], around) for field in record["fields"]]


def _field(schema: Schema, name: str, type: Type, around: frozenset[str]) -> pa.Field:
    inner = nullable(schema.resolved(type))
    return pa.field(name, _arrow(schema, schema.resolved(inner if inner is not None else type), around, name), True)


def nullable(type: Type) -> Type | None:
    """Return the other type of a union with null alone; None if the type is no such union."""
    others = [each for each in type if each != "null"] if isinstance(type, list) else []
    return others[0] if len(others) == 1 and isinstance(type, list) and len(type) == 2 else None


def name_of(type: Type) -> str:
    """Return the name of the kind of type: `union`, `record`, `string` and so on."""
    return "union" if isinstance(type, list) else type if isinstance(type, str) else str(type["type"])


def logical(type: Type) -> str | None:
    """Return the logical type, if it has a column of its own. A logical type that does not fit its type is ignored."""
    if not isinstance(type, Mapping):
        return None
    found = type.get("logicalType")
    if found == "decimal":
        scale, precision = type.get("scale", 0), type.get("precision", 0)
        fits = name_of(type) in ("bytes", "fixed") and 0 < precision <= 38 and 0 <= scale <= precision
        return "decimal" if fits else None
    return found if found in _LOGICAL.get(name_of(type), {}) else None


DAYS = {"time-millis": 86_400_000, "time-micros": 86_400_000_000}
"""How many values a time of day has: there is none from the next midnight on."""
_LOGICAL: dict[str, dict[str, pa.DataType]] = {
    "int": {"date": pa.date32(), "time-millis": pa.time32("ms")},
    "long": {
        "time-micros": pa.time64("us"),
        **{f"{kind}timestamp-millis": pa.timestamp("ms") for kind in ("", "local-")},
        **{f"{kind}timestamp-micros": pa.timestamp("us") for kind in ("", "local-")},
        **{f"{kind}timestamp-nanos": pa.timestamp("ns") for kind in ("", "local-")},
    },
    "string": {"uuid": pa.string()},
}
_ARROW = {
    "boolean": pa.bool_(),
    "int": pa.int32(),
    "long": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "string": pa.string(),
    "bytes": pa.binary(),
    "fixed": pa.binary(),
    "enum": pa.string(),
    **dict.fromkeys(("array", "map", "union", "null"), pa.large_string()),
}


def _arrow(schema: Schema, type: Type, around: frozenset[str], field: str) -> pa.DataType:
    name, meaning = name_of(type), logical(type)
    if name in ("record", "error"):
        assert isinstance(type, Mapping)
        if type["name"] in around:
            raise InvalidValue(f"field {field} has a type that contains itself", "leave the field out of the schema")
        return pa.struct(_fields(schema, type, around | {type["name"]}))
    if meaning == "decimal":
        assert isinstance(type, Mapping)
        return pa.decimal128(type["precision"], type.get("scale", 0))
    return _ARROW[name] if meaning is None else _LOGICAL[name][meaning]
