"""JSON texts of Avro values that have no column of their own, as they were written."""

from __future__ import annotations

from datetime import timedelta
from decimal import Decimal
from io import BytesIO
from math import isfinite, isnan
from typing import Any

import orjson

from tidegate.kernels.codecs.avro.schemas import Schema, Type


def self_contained(type: Type, schema: Schema) -> Any:
    """Return the type as `json_text` reads it.

    It has the definitions of the names that it refers to, each where it first comes, and exact decimals.
    """
    from fastavro.read import LOGICAL_READERS

    LOGICAL_READERS |= dict.fromkeys((f"bytes-{_EXACT}", f"fixed-{_EXACT}"), _exact_decimal)
    return _defined(type, schema, set())


def _defined(type: Any, schema: Schema, known: set[str]) -> Any:
    """`known`: the names that are defined already, each of which a schema defines once."""
    if isinstance(type, list):
        return [_defined(each, schema, known) for each in type]
    if isinstance(type, str):
        return type if type in known or type not in schema.named else _defined(schema.named[type], schema, known)
    if type.get("name") in known:
        return type["name"]
    found = {name: value for name, value in type.items() if not name.startswith("__")}
    if "name" in found:
        known.add(found["name"])
    if found.get("logicalType") == "decimal":  # one without a precision is ignored, as its specification says
        found |= {"logicalType": _EXACT if found.get("precision") else None}
    for part in ("items", "values"):
        if part in found:
            found[part] = _defined(found[part], schema, known)
    if "fields" in found:
        fields = found["fields"]
        found["fields"] = [{"name": each["name"], "type": _defined(each["type"], schema, known)} for each in fields]
    return found


def json_text(value: bytes, schema: Any) -> str | None:
    """Return the JSON text of a value of that schema; None of null. Raise ValueError if JSON cannot have it.

    Bytes are text of the characters that they are in ISO 8859-1, as in Avro's own JSON; decimals and times are text,
    and so are numbers that JSON lacks: "NaN", "Infinity" and "-Infinity".
    """
    from fastavro import schemaless_reader

    try:
        found = schemaless_reader(BytesIO(value), schema, None)
        return None if found is None else _dumped(found)
    except Exception as error:  # whatever a library raises for it, this value alone cannot be read
        raise ValueError(str(error)) from None


_EXACT = "tidegate-decimal"
"""A decimal of which no digit gets lost: fastavro rounds one with more digits than its precision."""


def _exact_decimal(value: bytes, type: dict[Any, Any] | None, _: object) -> Decimal:
    """Return the decimal. Raise ValueError if it has more digits than its type."""
    assert type is not None, "fastavro gives the type of what it reads"
    number = int.from_bytes(value, "big", signed=True)
    if abs(number) >= 10 ** type["precision"]:
        raise ValueError("a decimal has too many digits")
    return Decimal(f"{number}E-{type.get('scale') or 0}")


def _dumped(value: Any) -> str:
    text = orjson.dumps(value, default=_as_json)
    if b"null" in text:  # orjson writes numbers that JSON lacks as null
        text = orjson.dumps(_without_infinite(value), default=_as_json)
    return text.decode()


def _without_infinite(value: Any) -> Any:
    """Return the value with text in place of numbers that JSON lacks."""
    if isinstance(value, dict):
        return {name: _without_infinite(each) for name, each in value.items()}
    if isinstance(value, list):
        return [_without_infinite(each) for each in value]
    if isinstance(value, float) and not isfinite(value):
        return "NaN" if isnan(value) else "Infinity" if value > 0 else "-Infinity"
    return value


def _as_json(value: object) -> str:
    if isinstance(value, bytes):
        return value.decode("latin-1")
    if isinstance(value, Decimal | timedelta):
        return str(value)
    raise TypeError(type(value))
