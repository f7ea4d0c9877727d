"""The base of every operator's configuration.

Frozen, keyword-only, unknown keys refused; nothing has a silent default for grace or retention. Each operator's own
type lives in its folder; `read` gathers all problems at once, each with the value, the cause and the remedy.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, NamedTuple, TypeAlias, TypeVar

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    PlainSerializer,
    ValidationError,
    ValidationInfo,
    field_validator,
    model_validator,
)

from tidegate.contracts.errors import ConfigurationError, Problem
from tidegate.contracts.event_time import MAX_TIMESTAMP, format_duration_ms, parse_duration_ms, parse_size_bytes

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
    """The operator whose table another one reads, for how long that one holds records, and for how long these then wait
    at most for the table, ms (None: until it has caught up)."""

    table: str
    grace: int
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


class TimeWindows(Config):
    """Kafka's bytes of time windows: the key, then the window's start in eight bytes."""

    time: Annotated[Duration, Field(gt=0)]
    """Length of the windows, which the bytes do not say."""


def _read_windows(value: object) -> object:
    if isinstance(value, Mapping):
        return TimeWindows.model_validate(value)
    if value is None or value in ("none", "ignore", "headers", "session") or isinstance(value, TimeWindows):
        return value
    raise ValueError("not a way to name windows; write windows: headers, session, {time: 1h}, none or ignore")


Windows: TypeAlias = Annotated[
    Literal["none", "ignore", "headers", "session"] | TimeWindows | None, BeforeValidator(_read_windows)
]
OutputWindows = Literal["headers", "kafka"]


class KeyRules(OperatorRules):
    """What decides what a key is: the record's own, or the record's in its window."""

    windows: Windows = Field(default=None, validate_default=True)
    """Where a record names the window that its key is of: `headers`, or in Kafka's bytes of windowed keys, `{time: 1h}`
    with the windows' length or `session`; `none`: records of windows are rejected; `ignore`: windows are no part of
    keys. Omitted: as the operator of the file that writes the topic says, otherwise none."""

    @field_validator("windows")
    @classmethod
    def _none_unless_told(cls, windows: Windows) -> Windows:
        return windows or "none"

    @property
    def windowed(self) -> bool:
        """True when windows are part of the key."""
        return self.windows not in ("none", "ignore")

    @classmethod
    def windows_before(cls, settings: Mapping[str, Any]) -> Windows:
        """Return what `windows` was where the settings are of a release that did not have it."""
        return "ignore"

    def other_keys(self, before: KeyRules) -> dict[str, str]:
        """Return why keys that are held under `before` cannot be held under this configuration; nothing if they can."""
        if self.windowed == before.windowed:
            return {}
        return {"windows": "windows' keys and plain ones are not held together"}


class Written(NamedTuple):
    """What an operator says of the topic that it writes; None: it does not know.

    `closes_after`: how long after its end a window still changes, in ms.
    """

    windows: Windows = None
    closes_after: int | None = None
    key_format: Format | None = None


def added_windows(config: KeyRules, output: OutputWindows) -> AddedWindows | None:
    """Return how windows are added to output whose records bear them as the input's do; None: they are there."""
    if not config.windowed or config.windows == "headers":
        return None
    return "headers" if output == "headers" else "session" if config.windows == "session" else "time"


def passed_on(config: KeyRules, output: OutputWindows) -> Windows:
    """Return how records that pass name their windows in the output; None: it is not known."""
    return config.windows if output == "kafka" or not config.windowed else "headers"


def known_to_kafka(output: OutputWindows, windows: Windows) -> OutputWindows:
    """Return the way in which output names windows. Raises ValueError where Kafka's bytes cannot be written."""
    if output == "kafka" and windows in ("none", "ignore"):
        raise ValueError("its keys have no windows; remove it")
    if output == "kafka" and windows == "headers":
        raise ValueError(
            "headers do not say whether windows are sessions, and Kafka's bytes differ; write windows: headers, or let "
            "the writer of the input write Kafka's bytes"
        )
    return output


class TableFacts(NamedTuple):
    """What readers of a table need to know of it: how long it keeps versions, ms (None: the latest values alone);
    whether windows are part of its keys; and the format of its keys, if it is told."""

    history_retention: int | None
    windowed: bool = False
    key_format: Format | None = None


class InputKey(Config):
    """What a topic's keys are."""

    windows: Windows = None
    """As the operator's `windows`."""
    of: Format = "bytes"
    """As the operator's `key_format`."""


class InputTopic(Config):
    """A topic that is read, with what its keys are."""

    topic: str
    """Its name."""
    key: InputKey = InputKey()
    """What its keys are."""


class OutputKey(Config):
    """What the keys of the output are."""

    windows: OutputWindows = "headers"
    """As the operator's `output_windows`."""


class OutputTopic(Config):
    """A topic that is written, with what its keys are."""

    topic: str
    """Its name."""
    key: OutputKey = OutputKey()
    """What its keys are."""


def _input(value: object) -> object:
    if isinstance(value, Mapping):
        raise ValueError("not a topic; write input: NAME, or input: {topic: NAME, key: {windows: headers, of: string}}")
    return value


def _output(value: object) -> object:
    if isinstance(value, Mapping):
        raise ValueError("not a topic; write output: NAME, or output: {topic: NAME, key: {windows: kafka}}")
    return value


_OF_KEYS = {"input": {"windows": "windows", "of": "key_format"}, "output": {"windows": "output_windows"}}
"""What is said of a topic's keys, and the operator's options that it stands for."""


def spread(raw: Mapping[str, Any]) -> dict[str, Any]:
    """Return an operator's raw configuration with topics by name alone, and what is said of their keys beside them.

    A topic that is described in another form stays as it is, and is refused where the configuration is read.
    """
    flat = dict(raw)
    for side, options in _OF_KEYS.items():
        topic = raw.get(side)
        if isinstance(topic, Mapping) and {"topic"} <= set(topic) <= {"topic", "key"}:
            key = topic.get("key", {})
            if isinstance(key, Mapping) and set(key) <= set(options) and not {options[name] for name in key} & set(raw):
                flat |= {side: topic["topic"]} | {options[name]: value for name, value in key.items()}
    return flat


class OperatorConfig(OperatorRules):
    """An operator of a configuration file: its rules, and the topics between which it works."""

    input: Annotated[str, BeforeValidator(_input, json_schema_input_type=str | InputTopic)]
    """Topic that is read; with what its keys are: `{topic: NAME, key: {windows: headers, of: string}}`."""
    output: Annotated[str | None, BeforeValidator(_output, json_schema_input_type=str | OutputTopic | None)] = None
    """Topic of the emissions, also as `{topic: NAME, key: {windows: kafka}}`; omitted: they stay in the lake."""
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

    @model_validator(mode="before")
    @classmethod
    def _topics_say_what_keys_are(cls, raw: Any) -> Any:
        return spread(raw) if isinstance(raw, Mapping) else raw

    @field_validator("dead_letters")
    @classmethod
    def _topic_of_its_own(cls, topic: str | None, info: ValidationInfo) -> str | None:
        if topic is not None and topic in (info.data.get("input"), info.data.get("output")):
            raise ValueError("the input or the output of the same operator; name a topic of its own")
        return topic

    def as_table(self) -> TableFacts | None:
        """What it is to operators that read it; None: it is not a table."""
        return None

    def refuses(self, table: TableFacts) -> Iterator[str]:
        """Yield why it cannot read such a table, each "cause; remedy"."""
        yield from ()

    def writes(self) -> Written:
        """Return what it says of its output topic."""
        return Written(key_format=self.told_key_format)

    @classmethod
    def inferred(cls, raw: Mapping[str, Any], topic: Written) -> dict[str, Any]:
        """Return the options that the writer of its input settles, for those that `raw` may lack."""
        found: dict[str, Any] = {"key_format": topic.key_format}
        if issubclass(cls, KeyRules):
            found["windows"] = topic.windows
        return {option: value for option, value in found.items() if value is not None}

    def disagrees(self, topic: Written) -> Iterator[tuple[str, str]]:
        """Yield each option that contradicts the writer of its input, with "cause; remedy"."""
        if topic.key_format is not None and self.key_format != topic.key_format:
            yield "key_format", f"the topic's writer says {topic.key_format}; write the same, or leave it out"
        if isinstance(self, KeyRules) and topic.windows is not None and self.windows not in (topic.windows, "ignore"):
            said = _as_written(topic.windows)
            yield "windows", f"the topic's writer names windows by {said}; write windows: {said}, or leave it out"

    @property
    def told_key_format(self) -> Format | None:
        """The format of keys; None where it is only the default."""
        return self.key_format if "key_format" in self.model_fields_set or self.key_format != "bytes" else None

    def adds_windows(self) -> AddedWindows | None:
        """Return how windows are added to the records of the output; None: they have none, or say them already."""
        return None

    def functions(self) -> tuple[str, ...]:
        """The functions of the user's own that it calls, each `module:function`."""
        return ()


def _as_written(windows: Windows) -> str:
    return f"{{time: {format_duration_ms(windows.time)}}}" if isinstance(windows, TimeWindows) else str(windows)


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
