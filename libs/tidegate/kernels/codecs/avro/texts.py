"""JSON texts of Avro values that have no column of their own, as they were written."""

from __future__ import annotations

from datetime import timedelta
from decimal import Decimal
from io import BytesIO
from typing import Any

import orjson

from tidegate.kernels.codecs.avro.schemas import Schema, Type


def self_contained(type: Type, schema: Schema) -> Any:
    """Return the type with the definitions of the names that it refers to, each where it first comes."""
    return _defined(type, schema, set())


def _defined(type: Any, schema: Schema, known: set[str]) -> Any:
    if isinstance(type, list):
        return [_defined(each, schema, known) for each in type]
    if isinstance(type, str):
        return type if type in known or type not in schema.named else _defined(schema.named[type], schema, known)
    found = {name: value for name, value in type.items() if not name.startswith("__")}
    if "name" in found:
        known.add(found["name"])
    for part in ("items", "values"):
        if part in found:
            found[part] = _defined(found[part], schema, known)
    if "fields" in found:
        found["fields"] = [{**each, "type": _defined(each["type"], schema, known)} for each in found["fields"]]
    return found


def json_text(value: bytes, schema: Any) -> str | None:
    """Return the JSON text of a value of that schema; None of null. Raise ValueError if JSON cannot have it.

    Bytes are text of the characters that they are in ISO 8859-1, as in Avro's own JSON; decimals and times are text.
    """
    from fastavro import schemaless_reader

    try:
        found = schemaless_reader(BytesIO(value), schema, None)
        return None if found is None else orjson.dumps(found, default=_as_json).decode()
    except (OverflowError, TypeError) as error:
        raise ValueError(str(error)) from None


def _as_json(value: object) -> str:
    if isinstance(value, bytes):
        return value.decode("latin-1")
    if isinstance(value, Decimal | timedelta):
        return str(value)
    raise TypeError(type(value))
