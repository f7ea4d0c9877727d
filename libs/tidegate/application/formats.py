"""Formats of keys and values, event timestamps in values, how keys name windows, and fields that functions emit."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, is_dataclass
from dataclasses import fields as dataclass_fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, get_args, get_type_hints

import orjson

from tidegate.application.options import (
    Duration,
    Fault,
    FunctionName,
    Unusable,
    as_yaml,
    faults_in,
    function_name,
    option_of,
    optional,
)
from tidegate.application.places import caller
from tidegate.contracts.errors import InvalidValue, UserError

if TYPE_CHECKING:
    import pyarrow as pa

    from tidegate.contracts.values import Primitive
    from tidegate.operators.options.user_functions import BatchFunction

Fields: TypeAlias = "Mapping[str, Any] | type"
"""The fields of JSON objects: `{"delay": "int64"}`, or a dataclass."""


@dataclass(frozen=True)
class Format:
    """A format of keys or values. Views show them in it; filters and other expressions read them by it.

    `fields`: those of JSON objects that expressions may read, or what describes Avro or Protobuf. An operator without
    such steps sees bytes.
    """

    name: Primitive | Literal["json", "avro", "protobuf"]
    fields: Any = field(default=None, hash=False)

    @property
    def is_registered(self) -> bool:
        """Return whether values name their schemas in a registry."""
        return self.name in ("avro", "protobuf")


def bytes_() -> Format:
    """Return the format of plain bytes, which is the default."""
    return Format("bytes")


def string() -> Format:
    """Return the format of UTF-8 text."""
    return Format("string")


def json(fields: Fields | None = None) -> Format:
    """Return the format of JSON documents. `fields`: those that steps read, with their types.

    Types are bool, int8, int16, int32, int64, float32, float64, decimal(P,S), date, timestamp, timestamp_ntz, string,
    json (the text of any value), and fields again. Dates and times are text of ISO 8601; a timestamp has an offset. In
    a dataclass they are bool, int, float, str, and dataclasses; a field may be None.
    """
    return Format("json", None if fields is None else known_fields(fields))


def int16() -> Format:
    """Return the format of Kafka's short: two bytes, the highest first."""
    return Format("int16")


def int32() -> Format:
    """Return the format of Kafka's integer: four bytes, the highest first."""
    return Format("int32")


def int64() -> Format:
    """Return the format of Kafka's long: eight bytes, the highest first."""
    return Format("int64")


def avro(
    *,
    schema: Mapping[str, Any] | str | Path,
    schemas: str | Path | None = None,
    number: int | None = None,
) -> Format:
    """Return the format of Avro records in the wire format of a schema registry; steps of a pipeline read their fields.

    `schema`: the schema to read or write, also as JSON text, or the path of its file. To read, name `schemas`: where
    the schemas of writers are, from which values are resolved to this one as Avro's specification says. That is the URL
    of a schema registry, a file `NAME.properties` with the options of its client, or a folder, with `17.avsc` for the
    schema of number 17. Every worker reads files under the same path. To write, with `.to(TOPIC, value=...)`, name the
    `number` under which the schema is registered. Relative paths start at the folder of the program. It needs
    the extra `avro`, and for a registry `schema-registry`.
    """
    folder = caller().folder
    found = {
        "schema": _schema(folder, schema),
        "schemas": optional(schemas, (str, Path), lambda each: _place(folder, each), _PLACE),
        "number": optional(number, int, int, _NUMBER),
    }
    return Format("avro", {name: value for name, value in found.items() if value is not None})


def protobuf(
    message: str, *, schema: str | Path, schemas: str | Path | None = None, number: int | None = None
) -> Format:
    """Return the format of Protobuf in the wire format of a schema registry; steps of a pipeline read the fields.

    `message`: the full name of the message type to read or write, such as `weather.Report`. `schema`: the path of the
    `.proto` file that has it, or its text. To read, name `schemas`: where the schemas of writers are: as for `avro`,
    with `17.proto` for the schema of number 17 in a folder. Values of another message type, and those whose fields have
    types that cannot be read as those of `schema`, are rejected rows. To write, with `.to(TOPIC, value=...)`, name the
    `number` under which the schema is registered. It needs the extra `protobuf`, and for a registry
    `schema-registry`.
    """
    folder, remedy = caller().folder, 'name a message type, such as "weather.Report"'
    found = {
        "schema": option_of(schema, (str, Path), lambda each: _proto(folder, each), "name a .proto file"),
        "message": option_of(message, str, str, remedy),
        "schemas": optional(schemas, (str, Path), lambda each: _place(folder, each), _PLACE),
        "number": optional(number, int, int, _NUMBER),
    }
    return Format("protobuf", {name: value for name, value in found.items() if value is not None})


_PLACE = "name a folder, a registry's URL, or a file NAME.properties with the options of its client"
_NUMBER = "name the number of the schema in the registry"


def _proto(folder: Path, schema: str | Path) -> Any:
    if isinstance(schema, str) and not schema.endswith(".proto"):
        return schema
    try:
        return (folder / schema).read_text()
    except (OSError, UnicodeDecodeError) as error:
        return Unusable(Fault(str(schema), f"not a file with a schema: {error}", "name a .proto file"))


def registered(form: Format) -> dict[str, Any]:
    """Return the type of values that are read by their schemas, as a configuration file has it."""
    return {form.name: as_yaml({**form.fields, "number": None})}  # the number is for what is written


def _place(folder: Path, schemas: str | Path) -> Any:
    if schemas == "":
        return Unusable(Fault(schemas, "the place of the schemas has no name", _PLACE))
    is_url = isinstance(schemas, str) and schemas.startswith(("http://", "https://"))
    return str(schemas) if is_url else str((folder / schemas).absolute())


def _schema(folder: Path, schema: object) -> Any:
    if isinstance(schema, Mapping):
        return dict(schema)
    return option_of(schema, (str, Path), lambda given: _schema_in(folder, given), "pass a schema, or name its file")


def _schema_in(folder: Path, given: str | Path) -> Any:
    text = given if isinstance(given, str) and given.lstrip().startswith("{") else None
    try:
        return orjson.loads((folder / given).read_bytes() if text is None else text)
    except (OSError, ValueError) as error:
        cause = f"not {'a file with ' if text is None else ''}a schema: {error}"
        return Unusable(Fault(text or str(folder / given), cause, "pass a schema of Avro, or name a file that has one"))


def float32() -> Format:
    """Return the format of Kafka's float: four bytes, the highest first."""
    return Format("float32")


def float64() -> Format:
    """Return the format of Kafka's double: eight bytes, the highest first."""
    return Format("float64")


def encoded(value: object) -> Any:
    """Return the format in which results are written, as an option of a step."""
    return option_of(value, Format, _written, "write a format, such as tg.int64()")


def _written(form: Format) -> Any:
    if form.name == "json":
        return Unusable(Fault(form.name, "values are JSON already", "leave value out"))
    if form.is_registered:
        return {form.name: {name: value for name, value in form.fields.items() if name != "schemas"}}
    return form.name


def uuid() -> Format:
    """Return the format of Kafka's UUID: its text. Expressions read it in lower case."""
    return Format("uuid")


def known_fields(fields: Any) -> Any:
    """Return the fields as a configuration file has them, or what is wrong with them."""
    from tidegate.contracts.values import schema_of

    found = fields_of(fields)
    try:
        if not faults_in(found):
            schema_of(found)
    except InvalidValue as problem:
        return Unusable(Fault(fields, problem.cause, problem.remedy))
    return found


_OF_PYTHON = {bool: "bool", int: "int64", float: "float64", str: "string"}


def fields_of(fields: Any) -> Any:
    """Return the fields with the names of their types, as a configuration file has them."""
    if isinstance(fields, Mapping):
        return {name: fields_of(type) for name, type in fields.items()}
    if isinstance(fields, str):
        return fields
    if is_dataclass(fields) and isinstance(fields, type):
        hints = get_type_hints(fields)
        return {each.name: fields_of(hints[each.name]) for each in dataclass_fields(fields)}
    if isinstance(fields, Format):
        return fields.name if fields.fields is None else fields.fields
    present = [each for each in get_args(fields) if each is not type(None)]
    if len(present) == 1:
        return fields_of(present[0])
    if isinstance(fields, type) and fields in _OF_PYTHON:
        return _OF_PYTHON[fields]
    return Unusable(Fault(fields, "not a type of a field", "write bool, int, float, str, or a dataclass"))


@dataclass(frozen=True)
class TimestampIn:
    """The field of a JSON value that holds the event timestamp, and the unit of its number."""

    field: str
    unit: Literal["ms", "s", "us"] = "ms"


def timestamp(field: str, *, unit: Literal["ms", "s", "us"] = "ms") -> TimestampIn:
    """Return where the event timestamp is: in this field of a JSON value, a number in that unit.

    A field within a field is written with dots: `weather.observed`.
    """
    return TimestampIn(field, unit)


@dataclass(frozen=True)
class KafkaWindows:
    """Kafka's format of windowed keys in an output topic: the window is part of the key's bytes."""


def kafka_windows() -> KafkaWindows:
    """Return the format of windowed keys that Kafka Streams and ksqlDB read."""
    return KafkaWindows()


@dataclass(frozen=True)
class TimeWindowedKeys:
    """Kafka's format of time-windowed keys in an input topic, which does not contain the length of the windows."""

    length: Duration


def time_windows(length: Duration) -> TimeWindowedKeys:
    """Return Kafka's format of time-windowed keys, with windows of this length."""
    return TimeWindowedKeys(length)


def batch_function(
    *, emits: Fields | None = None
) -> Callable[[Callable[[pa.RecordBatch], pa.RecordBatch | pa.Array]], BatchFunction]:
    """Return the decorator of a function over a record batch, which has a column for each field of the rows.

    `emits`: the fields of the values that it makes, for `.map` and `.flat_map`. The function then returns a record
    batch of these fields, with one row for each row; for `.flat_map` with any number of them, and with a column `row`,
    which has the place of the row from which each was made. Omitted: it returns an array of bools, for `.filter`. What
    it makes of a row must depend on that row alone. Raise UserError if `emits` does not name fields.
    """
    from tidegate.contracts.values import schema_of
    from tidegate.operators.options.user_functions import BatchFunction

    written = None if emits is None else known_fields(emits)
    for fault in faults_in(written):
        raise UserError(fault.cause, value=fault.value, remedy=fault.remedy)
    schema = None if written is None else schema_of(written)
    return lambda function: BatchFunction(function, schema)


def function_choosing(function: Any) -> FunctionName | Unusable | None:
    """Return the name of a function that chooses rows, as an option."""
    if not hasattr(function, "emits"):
        return Unusable(Fault(function, "not a batch function", "decorate it with @tg.batch_function()"))
    if function.emits is not None:
        return Unusable(Fault(function.__name__, "the function makes values, and does not choose rows", "write .map"))
    return function_name(function)


def function_making(function: Any) -> FunctionName | Unusable | None:
    """Return the name of a function that makes values, as an option."""
    if getattr(function, "emits", None) is None:
        remedy = 'decorate it with @tg.batch_function(emits={"score": "float64"})'
        return Unusable(Fault(function, "not a function that says which fields it makes", remedy))
    return function_name(function)


def emitted(function: Any) -> dict[str, Any] | None:
    """Return the fields that the function makes, as a configuration file has them; None if it does not say."""
    from tidegate.contracts.values import as_written

    emits = getattr(function, "emits", None)
    return None if emits is None else as_written(emits)
