"""The types of a pipeline's input values, as a configuration has them."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, cast
from urllib.parse import urlsplit

import orjson
import pyarrow as pa
from pydantic import PlainSerializer, PlainValidator

from tidegate.contracts.config.option_types import Format
from tidegate.contracts.errors import InvalidValue
from tidegate.contracts.values import (
    PRIMITIVES,
    Avro,
    AvroOutput,
    HeaderForms,
    KeyForm,
    Primitive,
    Protobuf,
    ProtobufOutput,
    Values,
    as_written,
    schema_of,
)
from tidegate.kernels.codecs.avro.schemas import read_schema
from tidegate.kernels.codecs.protobuf.schemas import message_of
from tidegate.kernels.codecs.protobuf.schemas import read_schema as read_protobuf
from tidegate.kernels.codecs.registered import columns_of

_AVRO = "write {avro: {schema: {type: record, ...}, schemas: FOLDER}}, or the URL of a registry"
_PROTOBUF = "write {protobuf: {schema: TEXT, message: NAME, schemas: FOLDER}}, or the URL of a registry"
_OUTPUT = (
    "write {avro: {schema: {type: record, ...}, number: NUMBER}}, "
    "{protobuf: {schema: TEXT, message: NAME, number: NUMBER}}"
)
_LOGIN = "write url=... and basic.auth.user.info=NAME:PASSWORD in a file that ends with .properties, and name the file"


def _read_value(value: object) -> Any:
    if isinstance(value, pa.Schema | Avro | Protobuf) or (isinstance(value, str) and value in PRIMITIVES):
        return value
    if isinstance(value, Mapping) and set(value) == {"json"}:
        return schema_of(value["json"])
    if isinstance(value, Mapping) and set(value) == {"avro"}:
        return _read_avro(value["avro"])
    if isinstance(value, Mapping) and set(value) == {"protobuf"}:
        return _read_protobuf(value["protobuf"])
    forms = ", ".join(PRIMITIVES)
    raise InvalidValue(
        "not a type of values",
        f"write value: {{json: {{NAME: TYPE}}}}, {{avro: ...}}, {{protobuf: ...}}, or one of {forms}",
    )


def _read_key(key: object) -> Any:
    found = _read_value(key)
    if isinstance(found, pa.Schema):
        remedy = f"write key: {{avro: ...}}, {{protobuf: ...}}, or one of {', '.join(PRIMITIVES)}"
        raise InvalidValue("keys are not read as JSON", remedy)
    return found


def _read_avro(given: object) -> Avro:
    if not isinstance(given, Mapping) or set(given) != {"schema", "schemas"} or not isinstance(given["schemas"], str):
        raise InvalidValue("not a description of Avro values", _AVRO)
    _check_place(given["schemas"])
    found = Avro(orjson.dumps(given["schema"]).decode(), given["schemas"])
    columns_of(found)
    return found


def _read_protobuf(given: object) -> Protobuf:
    texts = [value for value in given.values() if isinstance(value, str)] if isinstance(given, Mapping) else []
    if not isinstance(given, Mapping) or set(given) != set(Protobuf._fields) or len(texts) != len(given):
        raise InvalidValue("not a description of Protobuf values", _PROTOBUF)
    _check_place(given["schemas"])
    found = Protobuf(**given)
    columns_of(found)
    return found


def _check_place(schemas: str) -> None:
    """Raise InvalidValue unless every worker finds the schemas there, and their place has no password."""
    url = urlsplit(schemas)
    if url.scheme in ("http", "https"):
        if url.username is not None or url.password is not None:
            raise InvalidValue("the URL has a login, which logs would show", _LOGIN)
    elif not Path(schemas).is_absolute():
        raise InvalidValue("the folder of the schemas is not absolute", "write its whole path: every worker reads it")


def value_as_written(value: str | pa.Schema | Avro | Protobuf) -> Any:
    """Return the type as a configuration file has it."""
    if isinstance(value, Avro):
        return {"avro": {"schema": orjson.loads(value.schema), "schemas": value.schemas}}
    if isinstance(value, Protobuf):
        return {"protobuf": value._asdict()}
    return value if isinstance(value, str) else {"json": as_written(value)}


ValueType = Annotated[
    Primitive | pa.Schema | Avro | Protobuf,
    PlainValidator(_read_value, json_schema_input_type=Primitive | dict[Literal["json", "avro", "protobuf"], Any]),
    PlainSerializer(value_as_written, when_used="json"),
]


KeyType = Annotated[
    KeyForm,
    PlainValidator(_read_key, json_schema_input_type=Primitive | dict[Literal["avro", "protobuf"], Any]),
    PlainSerializer(value_as_written, when_used="json"),
]


def _read_headers(headers: object) -> Any:
    if isinstance(headers, tuple):
        return headers
    remedy = f"write headers: {{NAME: TYPE}}, with one of {', '.join(PRIMITIVES)}"
    if not isinstance(headers, Mapping):
        raise InvalidValue("not the headers that steps read", remedy)
    for name, form in headers.items():
        if not isinstance(name, str) or not name:
            raise InvalidValue(f"{name!r} is not the name of a header", remedy)
        if not isinstance(form, str) or form not in PRIMITIVES:
            raise InvalidValue(f"header {name} has the type {form!r}, which does not exist", remedy)
    if len({name.lower() for name in headers}) < len(headers):
        raise InvalidValue(
            "two headers differ in upper and lower case alone", "name one of them: SQL takes them for one"
        )
    return tuple(headers.items())


HeaderTypes = Annotated[
    HeaderForms,
    PlainValidator(_read_headers, json_schema_input_type=dict[str, Primitive]),
    PlainSerializer(dict, return_type=dict[str, str], when_used="json"),
]


_OUTPUT_OPTIONS: dict[Any, set[str]] = {"avro": {*AvroOutput._fields}, "protobuf": {*ProtobufOutput._fields}}


def _read_output(value: object) -> Any:
    if isinstance(value, AvroOutput | ProtobufOutput) or (isinstance(value, str) and value in PRIMITIVES):
        return value
    form, given = next(iter(value.items())) if isinstance(value, Mapping) and len(value) == 1 else (None, None)
    if not isinstance(given, Mapping) or set(given) != _OUTPUT_OPTIONS.get(form):
        raise InvalidValue("not a format of values", f"{_OUTPUT}, or one of {', '.join(PRIMITIVES)}")
    if not isinstance(given["number"], int) or not 0 <= given["number"] < 2**31:
        raise InvalidValue("the number of the schema is no number of a registry", _OUTPUT)
    if form == "avro":
        found = AvroOutput(orjson.dumps(given["schema"]).decode(), given["number"])
        read_schema(found.schema)
        return found
    if not isinstance(given["schema"], str) or not isinstance(given["message"], str):
        raise InvalidValue("not a description of Protobuf values", _OUTPUT)
    message_of(read_protobuf(given["schema"]), given["message"])
    return ProtobufOutput(**given)


def _output_as_written(value: str | AvroOutput | ProtobufOutput) -> Any:
    match value:
        case AvroOutput(schema, number):
            return {"avro": {"schema": orjson.loads(schema), "number": number}}
        case ProtobufOutput():
            return {"protobuf": value._asdict()}
    return value


def _read_registered(value: object) -> Avro | Protobuf:
    found = _read_value(value)
    if not isinstance(found, Avro | Protobuf):
        raise InvalidValue("not a format of values with schemas", f"{_AVRO}; {_PROTOBUF}; for JSON write emits")
    return found


def problem_of_registered(value: object) -> InvalidValue | None:
    """Return why this is no format of values that name their schemas; None if it is one."""
    try:
        _read_registered(value)
    except InvalidValue as problem:
        return problem
    return None


RegisteredType = Annotated[
    Avro | Protobuf,
    PlainValidator(_read_registered, json_schema_input_type=dict[Literal["avro", "protobuf"], Any]),
    PlainSerializer(value_as_written, when_used="json"),
]


OutputType = Annotated[
    Primitive | AvroOutput | ProtobufOutput,
    PlainValidator(_read_output, json_schema_input_type=Primitive | dict[Literal["avro", "protobuf"], Any]),
    PlainSerializer(_output_as_written, when_used="json"),
]


def values_of(value: Any) -> Values:
    """Return what is known of values of that type."""
    if isinstance(value, Avro | Protobuf):
        return Values("avro" if isinstance(value, Avro) else "protobuf", columns_of(value), value)
    return Values.of_fields(value) if isinstance(value, pa.Schema) else Values.of_primitive(value)


def type_of(values: Values) -> Any:
    """Return the type of such values as a configuration file has it; None if it has none."""
    if values.form == "object":
        return {"json": as_written(values.schema)}
    if isinstance(values.registered, Avro | Protobuf):
        return value_as_written(values.registered)
    return values.form if values.form in PRIMITIVES and values.registered is None else None


def shown_as(type: object) -> Format | None:
    """Return the format in which views show keys or values of that type; None for bytes, Avro and Protobuf."""
    if isinstance(type, pa.Schema) or (isinstance(type, Mapping) and "json" in type):
        return "json"
    if not isinstance(type, str) or type not in PRIMITIVES or type == "bytes":
        return None
    return "string" if type == "uuid" else cast(Format, type)
