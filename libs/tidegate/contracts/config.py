"""The base of every operator's configuration. May import: the standard library, pydantic, contracts.

Frozen, keyword-only, unknown keys refused; nothing has a silent default for grace or retention. Each operator's own
type lives in its folder; `read` gathers all problems at once, each with the value, the cause and the remedy.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, NamedTuple, TypeVar

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    PlainSerializer,
    ValidationError,
    ValidationInfo,
    field_validator,
)

from tidegate.contracts.errors import ConfigurationError, Problem
from tidegate.contracts.event_time import MAX_TIMESTAMP, parse_duration_ms, parse_size_bytes

_URL = re.compile(r"[a-zA-Z][a-zA-Z0-9+.-]*:/")


def _duration(value: object) -> object:
    if isinstance(value, str):
        return parse_duration_ms(value)
    if isinstance(value, int) and not isinstance(value, bool) and value != 0:
        raise ValueError("a duration needs a unit; write 200ms, 30s, 5m, 2h, 30d or ISO 8601 such as PT5M")
    return value


def _keep(value: object) -> object:
    if value == "forever":
        return value
    if not isinstance(value, str | int):
        raise ValueError("neither a duration nor forever; write 30d, or forever")
    return _duration(value)


def _folder(value: object) -> object:
    if _URL.match(str(value)):
        raise ValueError("a URL, not a folder; name a folder of a file system with hard links, such as a disk or NFS")
    return value


def _size(value: object) -> object:
    return parse_size_bytes(value) if isinstance(value, str) else value


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
"""A folder. A URL is refused whatever its scheme: as a path it would be a folder of that name beside the program."""
Count = Annotated[int, Field(ge=0, le=2**63 - 1)]
Size = Annotated[
    Count,
    BeforeValidator(_size, json_schema_input_type=str | int),
    Field(examples=[65_536, "64MiB"]),
]
Format = Literal["bytes", "string", "json"]
AddedWindows = Literal["headers", "time", "session"]
"""How records that are written are told of their windows: by headers, or by Kafka's bytes of time or session windows
behind the key."""


class Config(BaseModel):
    """Frozen values, every key known."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)


class TimestampField(Config):
    """The event timestamp is a top-level field of a JSON value."""

    field: str
    """Name of the field."""
    unit: Literal["ms", "s", "us"] = "ms"
    """Unit of its number."""


class TableRead(NamedTuple):
    """The operator whose table another one reads, and how long that one waits for it at the most, ms (None: never)."""

    table: str
    wait: int | None


class OperatorRules(Config):
    """What decides an operator's results, wherever its records come from."""

    live: ClassVar[frozenset[str]] = frozenset()
    """The kind's own options that may change while it holds something, unless `cannot_follow` says why not."""

    kind: str
    """Kind of operator."""
    timestamp: TimestampField | None = None
    """Where the event timestamp is; default: the Kafka record's."""
    key_format: Format = "bytes"
    """How views show keys."""
    value_format: Format = "bytes"
    """How views show values."""
    max_ahead: Duration | None = None
    """Records with a timestamp further than this ahead of the batch's clock are rejected; default: none is."""
    rewind_window: Duration = 7 * 86_400_000
    """How far back the log can be read as of an earlier version."""

    def remembers(self) -> int | None:
        """How far behind stream time what has closed is still known, in ms; None: nothing depends on that."""
        return None

    def reads(self) -> TableRead | None:
        """The table that it reads; None: none."""
        return None

    def cannot_follow(self, before: OperatorRules, known: int = MAX_TIMESTAMP) -> dict[str, str]:
        """Per live option why what is held under `before`, which is of the same kind, cannot go on under this.

        `known`: as `before.remembers`, where a still earlier configuration remembered less.
        """
        return {}


class TableFacts(NamedTuple):
    """What readers of a table need to know of it: how long it keeps versions, ms; None: the latest values alone."""

    history_retention: int | None


class OperatorConfig(OperatorRules):
    """An operator of a configuration file: its rules, and the topics between which it works."""

    input: str
    """Topic that is read."""
    output: str | None = None
    """Topic of the emissions; omitted: they stay in the lake."""
    dead_letters: str | None = None
    """Topic of the records that are refused, late and rejected ones; omitted: they stay in the lake."""
    idle_after: Duration | None = None
    """Wall time without a record after which stream time goes on by itself; default: never."""

    @field_validator("output")
    @classmethod
    def _not_the_input(cls, topic: str | None, info: ValidationInfo) -> str | None:
        if topic is not None and topic == info.data.get("input"):
            raise ValueError("the input of the same operator: it would read what it writes; name a topic of its own")
        return topic

    @field_validator("dead_letters")
    @classmethod
    def _topic_of_its_own(cls, topic: str | None, info: ValidationInfo) -> str | None:
        if topic is not None and topic in (info.data.get("input"), info.data.get("output")):
            raise ValueError("the input or the output of the same operator; name a topic of its own")
        return topic

    def as_table(self) -> TableFacts | None:
        """What it is to operators that read it; None: it is not a table."""
        return None

    def refuses(self, table: TableFacts) -> str | None:
        """Why it cannot read such a table: "cause; remedy". None: it can."""
        return None

    def adds_windows(self) -> AddedWindows | None:
        """Return how windows are added to the records of the output; None: they have none, or say them already."""
        return None

    def functions(self) -> tuple[str, ...]:
        """The functions of the user's own that it calls, each `module:function`."""
        return ()


Model = TypeVar("Model", bound=BaseModel)


def read(model: type[Model], raw: Mapping[str, Any], where: str = "") -> Model:
    """The configuration that `raw` describes. Raises ConfigurationError with every problem at once."""
    try:
        return model.model_validate(raw)
    except ValidationError as error:
        raise ConfigurationError([_problem(found, where, _secrets(model)) for found in error.errors()]) from None


def _secrets(model: type[BaseModel]) -> list[str]:
    """What is not to be shown: of a secret type, or kept out of `repr` for the secrets among it."""
    return [
        name for name, field in model.model_fields.items() if "SecretStr" in str(field.annotation) or not field.repr
    ]


def _problem(found: Any, where: str, secrets: list[str]) -> Problem:
    """Of what is missing or unknown no value is shown: it would be all that is around it, or a misspelt secret."""
    place = ".".join(str(part) for part in ([where] if where else []) + list(found["loc"]))
    message = found["msg"].removeprefix("Value error, ")
    cause, _, remedy = message.partition("; ")
    if found["type"] == "extra_forbidden":
        cause, remedy = "unknown key", "remove it, or compare its spelling with `tidegate validate --schema`"
    elif found["type"] == "missing":
        cause, remedy = "required, and not there", "add it"
    value = None if found["type"] in ("missing", "extra_forbidden") else found.get("input")
    if found["loc"] and found["loc"][0] in secrets:
        value = "(hidden)"
    return Problem(where=place or "file", value=value, cause=cause, remedy=remedy or "give a value of that form")
