"""The types of single options: how each is written, and what is refused."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Annotated, Literal

from pydantic import AfterValidator, BeforeValidator, Field, PlainSerializer, PlainValidator, TypeAdapter

from tidegate.contracts.errors import InvalidValue
from tidegate.contracts.event_time import duration_text, parse_duration_ms, parse_size_bytes
from tidegate.contracts.naming import (
    FUNCTION,
    field_problem,
    function_problem,
    module_problem,
    name_problem,
    path_problem,
    topic_problem,
)
from tidegate.contracts.values import Registered

_URL = re.compile(r"[a-zA-Z][a-zA-Z0-9+.-]*:/")


def _duration(value: object) -> object:
    if isinstance(value, timedelta):
        return parse_duration_ms(duration_text(value))
    if isinstance(value, str):
        return parse_duration_ms(value)
    if isinstance(value, int | float) and value != 0:
        raise InvalidValue("a duration needs a unit", "write 200ms, 30s, 5m, 2h, 30d or ISO 8601 such as PT5M")
    return value


def _keep(value: object) -> object:
    if value == "forever":
        return value
    if not isinstance(value, str | int | float | timedelta):
        raise InvalidValue("neither a duration nor forever", "write 30d, or forever")
    try:
        return _duration(value)
    except InvalidValue as error:
        raise InvalidValue(error.cause, f"{error.remedy}, or forever") from None


def _folder(value: object) -> object:
    if not str(value).strip():
        raise InvalidValue("no folder is named", "name a folder, such as ./lake")
    if str(value).startswith("~"):
        raise InvalidValue("~ is not expanded", "write the full path, such as /home/NAME/lake")
    if _URL.match(str(value)):
        raise InvalidValue(
            "a URL, not a folder", "name a folder of a file system with hard links, such as a disk or NFS"
        )
    return value


def _without(problem_of: Callable[[str], InvalidValue | None]) -> AfterValidator:
    """Return the validator that refuses text with a problem."""

    def check(text: str) -> str:
        if (problem := problem_of(text)) is not None:
            raise problem
        return text

    return AfterValidator(check)


def _size(value: object) -> object:
    return parse_size_bytes(value) if isinstance(value, str) else value


Name = Annotated[str, _without(name_problem)]
Topic = Annotated[str, _without(topic_problem)]
FieldName = Annotated[str, _without(field_problem)]
FieldPath = Annotated[str, _without(path_problem)]
ModuleName = Annotated[str, _without(module_problem)]
FunctionName = Annotated[str, _without(function_problem), Field(json_schema_extra={"pattern": FUNCTION})]
"""The name of a function, `module:function`."""
MOST_PARTITIONS = 100_000
"""Of a topic: more than brokers can bear."""
Partitions = Annotated[int, Field(ge=1, le=MOST_PARTITIONS)]
"""The number of partitions of a topic."""
Duration = Annotated[
    int,
    BeforeValidator(_duration, json_schema_input_type=str | int),
    PlainSerializer(lambda ms: f"{ms}ms", return_type=str, when_used="json"),
    Field(ge=0, examples=["30s", "5m", "PT5M"]),
]
Keep = Annotated[
    int | Literal["forever"],
    BeforeValidator(_keep, json_schema_input_type=str | int),
    Field(examples=["30d", "forever"]),
]
Folder = Annotated[Path, BeforeValidator(_folder, json_schema_input_type=Path)]
"""A folder. A URL of any scheme is refused: as a path it would name a folder in the working directory."""
Count = Annotated[int, Field(ge=0, le=2**63 - 1)]
Size = Annotated[
    Count,
    BeforeValidator(_size, json_schema_input_type=str | int),
    Field(examples=[65_536, "64MiB"]),
]
Format = Literal["bytes", "string", "json", "int16", "int32", "int64", "float32", "float64"]
ShownAs = Annotated[
    Format | Registered,
    PlainValidator(TypeAdapter(Format).validate_python, json_schema_input_type=Format),
]
"""How views show values: an option has a format; the types of registered values come from their schemas alone."""
