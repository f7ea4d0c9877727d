"""Checks the defaults of a reader's schema, and removes those of a writer's.

fastavro looks at their JSON types alone, and not at all of them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import orjson
import pyarrow as pa

from tidegate.contracts.errors import InvalidValue
from tidegate.kernels.codecs.avro.schemas import DAYS, Schema, Type, logical, name_of
from tidegate.kernels.codecs.primitives import uuids_of

_REMEDY = "write a default that is one, or leave it out"


def check_defaults(schema: Schema) -> None:
    """Raise InvalidValue if a field has a default that is no value of its type."""
    for type in schema.named.values():
        for field in type.get("fields", ()) if isinstance(type, Mapping) else ():
            if "default" in field and not _fits(schema, field["type"], field["default"]):
                kind = schema.resolved(field["type"])
                no = f"is no value of its type, {logical(kind) or name_of(kind)}"
                raise InvalidValue(f"the default {field['default']!r} of field {field['name']} {no}", _REMEDY)


def without_defaults(text: str) -> str:
    """Return a writer's schema without its defaults: they are never read, and registries accept wrong ones."""
    try:
        return orjson.dumps(_without_defaults(orjson.loads(text))).decode()
    except orjson.JSONDecodeError:
        return text  # whoever reads it says why


def _without_defaults(part: Any) -> Any:
    if isinstance(part, list):
        return [_without_defaults(each) for each in part]
    if isinstance(part, dict):
        return {name: _without_defaults(each) for name, each in part.items() if name != "default"}
    return part


def _fits(schema: Schema, type: Type, value: Any) -> bool:
    found = schema.resolved(type)
    if isinstance(found, list):
        return any(_fits(schema, each, value) for each in found)
    kind = name_of(found)
    if isinstance(found, Mapping) and kind in _NESTED:
        return _NESTED[kind](schema, found, value)
    meaning = logical(found)
    if isinstance(found, Mapping) and meaning == "decimal" and _SCALARS[kind](found, value):
        number, most = int.from_bytes(value.encode("latin-1"), "big", signed=True), int(10 ** found["precision"])
        return -most < number < most
    if meaning in DAYS:
        return _is_whole(value, 64) and 0 <= value < DAYS[meaning]
    return _is_uuid(value) if meaning == "uuid" else _SCALARS[kind](found, value)


def _is_record(schema: Schema, type: Mapping[str, Any], value: Any) -> bool:
    return isinstance(value, Mapping) and all(
        _fits(schema, field["type"], value[field["name"]]) if field["name"] in value else "default" in field
        for field in type["fields"]
    )


def _is_array(schema: Schema, type: Mapping[str, Any], value: Any) -> bool:
    return isinstance(value, list) and all(_fits(schema, type["items"], each) for each in value)


def _is_map(schema: Schema, type: Mapping[str, Any], value: Any) -> bool:
    return isinstance(value, Mapping) and all(_fits(schema, type["values"], each) for each in value.values())


_NESTED: dict[str, Callable[[Schema, Mapping[str, Any], Any], bool]] = {
    "record": _is_record,
    "error": _is_record,
    "array": _is_array,
    "map": _is_map,
}


def _is_whole(value: Any, bits: int) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and -(2 ** (bits - 1)) <= value < 2 ** (bits - 1)


def _is_real(value: Any, kind: type[np.floating]) -> bool:
    """Return whether the value is a number, which may be written as text: JSON lacks some of them."""
    try:
        number = float(value)
    except (TypeError, ValueError, OverflowError):
        return False
    with np.errstate(over="ignore"):
        return not isinstance(value, bool) and bool(np.isfinite(kind(number)) or not np.isfinite(number))


def _is_bytes(value: Any) -> bool:
    return isinstance(value, str) and all(ord(each) < 256 for each in value)


def _is_uuid(value: Any) -> bool:
    return isinstance(value, str) and not uuids_of(pa.array([value.encode()], pa.binary()))[1].any()


_SCALARS: dict[str, Callable[[Any, Any], bool]] = {
    "null": lambda _, value: value is None,
    "boolean": lambda _, value: isinstance(value, bool),
    "int": lambda _, value: _is_whole(value, 32),
    "long": lambda _, value: _is_whole(value, 64),
    "float": lambda _, value: _is_real(value, np.float32),
    "double": lambda _, value: _is_real(value, np.float64),
    "string": lambda _, value: isinstance(value, str),
    "bytes": lambda _, value: _is_bytes(value),
    "fixed": lambda type, value: _is_bytes(value) and len(value) == type["size"],
    "enum": lambda type, value: value in type["symbols"],
}
