"""The types of a pipeline's input values, as a configuration has them."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal
from urllib.parse import urlsplit

import orjson
import pyarrow as pa
from pydantic import PlainSerializer, PlainValidator

from tidegate.contracts.errors import InvalidValue
from tidegate.contracts.values import PRIMITIVES, Avro, AvroOutput, Primitive, Values, as_written, schema_of
from tidegate.kernels.codecs.avro.schemas import columns_of, read_schema

_AVRO = "write {avro: {schema: {type: record, ...}, schemas: FOLDER}}, or the URL of a registry"
_OUTPUT = "write {avro: {schema: {type: record, ...}, number: NUMBER}}"
_LOGIN = "write url=... and basic.auth.user.info=NAME:PASSWORD in a file that ends with .properties, and name the file"


def _read_value(value: object) -> Any:
    if isinstance(value, pa.Schema | Avro) or (isinstance(value, str) and value in PRIMITIVES):
        return value
    if isinstance(value, Mapping) and set(value) == {"json"}:
        return schema_of(value["json"])
    if isinstance(value, Mapping) and set(value) == {"avro"}:
        return _read_avro(value["avro"])
    forms = ", ".join(PRIMITIVES)
    raise InvalidValue(
        "not a type of values", f"write value: {{json: {{NAME: TYPE}}}}, {{avro: ...}}, or one of {forms}"
    )


def _read_avro(given: object) -> Avro:
    if not isinstance(given, Mapping) or set(given) != {"schema", "schemas"} or not isinstance(given["schemas"], str):
        raise InvalidValue("not a description of Avro values", _AVRO)
    _check_place(given["schemas"])
    found = Avro(orjson.dumps(given["schema"]).decode(), given["schemas"])
    columns_of(read_schema(found.schema))
    return found


def _check_place(schemas: str) -> None:
    """Raise InvalidValue unless every worker finds the schemas there, and their place has no password."""
    url = urlsplit(schemas)
    if url.scheme in ("http", "https"):
        if url.username is not None or url.password is not None:
            raise InvalidValue("the URL has a login, which logs would show", _LOGIN)
    elif not Path(schemas).is_absolute():
        raise InvalidValue("the folder of the schemas is not absolute", "write its whole path: every worker reads it")


def value_as_written(value: str | pa.Schema | Avro) -> Any:
    """Return the type as a configuration file has it."""
    if isinstance(value, Avro):
        return {"avro": {"schema": orjson.loads(value.schema), "schemas": value.schemas}}
    return value if isinstance(value, str) else {"json": as_written(value)}


ValueType = Annotated[
    Primitive | pa.Schema | Avro,
    PlainValidator(
        _read_value, json_schema_input_type=Primitive | dict[Literal["json"], Any] | dict[Literal["avro"], Any]
    ),
    PlainSerializer(value_as_written, when_used="json"),
]


def _read_output(value: object) -> Any:
    if isinstance(value, AvroOutput) or (isinstance(value, str) and value in PRIMITIVES):
        return value
    given = value.get("avro") if isinstance(value, Mapping) and set(value) == {"avro"} else None
    if not isinstance(given, Mapping) or set(given) != {"schema", "number"}:
        raise InvalidValue("not a format of values", f"{_OUTPUT}, or one of {', '.join(PRIMITIVES)}")
    if not isinstance(given["number"], int) or not 0 <= given["number"] < 2**31:
        raise InvalidValue("the number of the schema is no number of a registry", _OUTPUT)
    found = AvroOutput(orjson.dumps(given["schema"]).decode(), given["number"])
    read_schema(found.schema)
    return found


def _output_as_written(value: str | AvroOutput) -> Any:
    if isinstance(value, str):
        return value
    return {"avro": {"schema": orjson.loads(value.schema), "number": value.number}}


OutputType = Annotated[
    Primitive | AvroOutput,
    PlainValidator(_read_output, json_schema_input_type=Primitive | dict[Literal["avro"], Any]),
    PlainSerializer(_output_as_written, when_used="json"),
]


def values_of(value: Any) -> Values:
    """Return what is known of values of that type."""
    if isinstance(value, Avro):
        return Values("avro", columns_of(read_schema(value.schema)), value)
    return Values.of_fields(value) if isinstance(value, pa.Schema) else Values.of_primitive(value)


def shown_as(type: object) -> Literal["string", "json"] | None:
    """Return the format in which views show keys or values of that type; None for those that they show as bytes."""
    if isinstance(type, pa.Schema) or (isinstance(type, Mapping) and "json" in type):
        return "json"
    return "string" if type in ("string", "uuid") else None
