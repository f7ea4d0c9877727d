"""The base types of every operator's configuration, and `read`, which validates a raw configuration.

Configurations are frozen and keyword-only, and unknown keys are refused. Grace and retention have no silent default.
Each operator's own type is in the operator's folder. `read` reports all problems at once, each with the value, the
cause and the remedy.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import timedelta
from pathlib import Path
from typing import (
    TYPE_CHECKING,
    Annotated,
    Any,
    ClassVar,
    Literal,
    NamedTuple,
    Protocol,
    Self,
    TypeAlias,
    TypeVar,
    get_args,
    get_origin,
)

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    PlainSerializer,
    PlainValidator,
    TypeAdapter,
    ValidationError,
    ValidationInfo,
    field_validator,
    model_validator,
)

from tidegate.contracts.errors import ConfigurationError, InvalidValue
from tidegate.contracts.event_time import (
    MAX_TIMESTAMP,
    NO_STREAM_TIME,
    duration_text,
    format_duration_ms,
    parse_duration_ms,
    parse_size_bytes,
)
from tidegate.contracts.naming import (
    FUNCTION,
    field_problem,
    function_problem,
    module_problem,
    name_problem,
    path_problem,
    topic_problem,
)
from tidegate.contracts.validation import problems_of
from tidegate.contracts.values import Registered

if TYPE_CHECKING:
    import pyarrow as pa

    from tidegate.contracts.values import Values

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
AddedWindows = Literal["headers", "time", "session"]
"""How windows are added to output records: as headers, or in Kafka's format of time-windowed or session keys."""


def _types(annotation: Any) -> Iterator[Any]:
    """Yield the types of all values that an annotation allows."""
    origin = get_origin(annotation)
    if origin is None:
        yield annotation
    elif origin is Literal:
        yield from map(type, get_args(annotation))
    else:
        for part in get_args(annotation)[:1] if origin is Annotated else get_args(annotation):
            yield from _types(part)


class Config(BaseModel):
    """Base class of all configurations: frozen values, unknown keys refused."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)

    def __init__(self, /, **options: Any) -> None:
        """Check the options of a configuration that a program makes. Raise ConfigurationError with all problems."""
        try:
            super().__init__(**options)
        except ValidationError as error:
            raise ConfigurationError(problems_of(error, type(self).__name__, _secrets(type(self)))) from None

    # Without this mark, pydantic would call `__init__` for each part of a configuration, and the problems of one part
    # would hide those of all others.
    __init__.__pydantic_base_init__ = True  # type: ignore[attr-defined]

    @field_validator("*", mode="before")
    @classmethod
    def _a_boolean_is_no_number(cls, value: object, info: ValidationInfo) -> object:
        """Refuse a boolean where a number or a duration is expected: to Python and pydantic, True is 1."""
        if isinstance(value, bool) and info.field_name is not None:
            types = set(_types(cls.model_fields[info.field_name].annotation))
            if bool not in types and types & {int, float}:
                raise InvalidValue(
                    "a boolean, not a number or a duration", "write the number, or the duration with a unit"
                )
        return value


class JsonField(Config):
    """A field of a JSON object, or of an object within it."""

    field: FieldName | None = None
    """Name of a top-level field."""
    path: FieldPath | None = None
    """Instead of `field`: the names that lead to a field within a field, separated by dots: `weather.gust`."""

    @model_validator(mode="after")
    def _one_place(self) -> Self:
        if (self.field is None) == (self.path is None):
            raise InvalidValue(
                "it does not name one field", "write field: NAME, or path: NAME.NAME for a field within a field"
            )
        return self

    @classmethod
    def at(cls, text: str) -> Self:
        """Return the field of that name, or of that path if the text has dots."""
        return cls.model_validate({"path" if "." in text else "field": text})

    @property
    def names(self) -> tuple[str, ...]:
        """Return the names that lead to the field, from the outermost object on."""
        return tuple(self.path.split(".")) if self.path is not None else (self.field or "",)


class TimestampField(JsonField):
    """The field of a JSON value that holds the event timestamp."""

    unit: Literal["ms", "s", "us"] = "ms"
    """Unit of the number in that field."""


class _Times(Protocol):
    """What is known of the times of a partition."""

    @property
    def stream_time(self) -> int: ...
    @property
    def reader_time(self) -> Mapping[str, int]: ...


class TableRead(NamedTuple):
    """How an operator reads a table.

    `table`: name of the operator whose table is read. `grace`: how long the reader holds records, ms. `wait`: maximum
    time that these records then wait for the table, ms; None: until the table has caught up. `step`: the step of a
    pipeline that reads the table; None: the operator is no pipeline. `has_own_time`: the step is not the first that
    holds state, whose stream time is that of the partition.
    """

    table: str
    grace: int
    wait: int | None
    step: str | None = None
    has_own_time: bool = False

    def time_of(self, partition: _Times) -> int:
        """Return the stream time with which the partition reads the table."""
        if not self.has_own_time:
            return partition.stream_time
        # rule: step-reads-with-own-time
        return partition.reader_time.get(self.table, NO_STREAM_TIME)

    def measure_of(self, measures: Mapping[str, int], name: str) -> int:
        """Return a measure of what reads the table; 0 if it has no such measure."""
        return measures.get(name if self.step is None else f"{self.step}.{name}", 0)


class PartChange(NamedTuple):
    """A part of an option that differs, with its values as they would be written (None: left out).

    `refused`: why the state does not allow the change; None: it is allowed. `note`: what then is worth knowing.
    """

    option: str
    before: Any = None
    after: Any = None
    refused: str | None = None
    note: str | None = None


Held = Callable[[str], int]
"""A function that says how much a part of an operator's state holds, by the part's name."""


def holds_nothing(part: str) -> int:
    """Return 0, of any part."""
    return 0


class OperatorRules(Config):
    """The options that decide an operator's results, wherever its records come from."""

    live: ClassVar[frozenset[str]] = frozenset()
    """Options of this kind that may change while the operator holds records, unless `incompatibilities` objects."""
    streams: ClassVar[int] = 1
    """The number of streams that an operator of this kind reads, tables aside."""

    kind: str
    """Kind of operator."""
    timestamp: TimestampField | None = None
    """Where the event timestamp is; default: it is the timestamp of the Kafka record."""
    key_format: ShownAs = "bytes"
    """Format in which views show keys."""
    value_format: ShownAs = "bytes"
    """Format in which views show values."""
    max_ahead: Duration | None = None
    """Records with a timestamp further than this ahead of the micro-batch's clock are rejected; default: no limit."""
    rewind_window: Duration = 7 * 86_400_000
    """How far back in time the log can be read as of an earlier version."""

    def shown(self, step: str | None = None) -> OperatorRules:
        """Return the rules with the formats in which views show its results, or what a step of it holds and emits."""
        return self

    def shown_formats(self) -> set[ShownAs]:
        """Return the formats of keys and values that its views need."""
        return {self.key_format, self.value_format}

    def closed_kept_for_ms(self) -> int | None:
        """Return how far behind stream time closed windows are still known, in ms; None if nothing depends on that."""
        return None

    def reads(self) -> tuple[TableRead, ...]:
        """Return how this operator reads each of the tables that it joins; none unless its kind says so."""
        return ()

    @property
    def operators(self) -> Mapping[str, OperatorRules]:
        """Return the rules of the steps that hold state, by name; of an operator that is no pipeline none."""
        return {}

    def results(self, values: Values, emits: pa.Schema | None) -> Values:
        """Return what is known of the results' values if the input has these: the same, unless the kind makes others.

        `emits`: the fields that only its user knows: of what a function returns, or of a table's values.
        """
        return values

    def hold(self, length: int | None) -> int | None:
        """Return how far the time marks that the operator passes on stay behind its stream time, ms.

        `length`: that of the windows in the keys of its input; None: unknown. Return None if it passes no marks on, so
        that its results alone move time behind it: the default.
        """
        return None

    def incompatibilities(self, before: OperatorRules, known: int = MAX_TIMESTAMP) -> dict[str, str]:
        """Return, per live option, why state held under `before` cannot continue under this configuration.

        `before` is of the same kind. `known`: how far behind stream time closed windows are still known, in ms; this is
        less than `before.closed_kept_for_ms` if an even earlier configuration kept closed windows for a shorter time.
        """
        return {}

    def part_changes(
        self, before: OperatorRules, known: int = MAX_TIMESTAMP, held: Held = holds_nothing
    ) -> dict[str, list[PartChange]]:
        """Return the changes of options that are judged part by part, by option; the default is none.

        `before`, `known`: as for `incompatibilities`. `held`: how much a part of that name holds.
        """
        return {}

    def reads_json(self) -> bool:
        """Return whether the operator reads its input's values as JSON, whatever they are."""
        return False

    def unknown_fields(self, values: Values) -> Iterator[tuple[str, InvalidValue]]:
        """Yield what is wrong with options that name fields of its input's values, with the names of the options."""
        return iter(())

    def held_columns(self, values: Values) -> pa.Schema:
        """Return the columns of its input's values that the operator's state may hold: all, unless the kind knows."""
        return values.schema


class TimeWindows(Config):
    """Kafka's format of time-windowed keys: the key, then the window's start in eight bytes."""

    time: Annotated[Duration, Field(gt=0)]
    """Length of the windows, which the key does not contain."""


def _read_windows(value: object) -> object:
    if isinstance(value, Mapping):
        return TimeWindows.model_validate(value)
    if value is None or value in ("none", "ignore", "headers", "session") or isinstance(value, TimeWindows):
        return value
    raise InvalidValue("it is not a way to name windows", "write windows: headers, session, {time: 1h}, none or ignore")


Windows: TypeAlias = Annotated[
    Literal["none", "ignore", "headers", "session"] | TimeWindows | None, BeforeValidator(_read_windows)
]
OutputWindows = Literal["headers", "kafka"]


def check_output_windows(output: OutputWindows, info: ValidationInfo) -> OutputWindows:
    """Refuse `kafka` where Kafka's windowed keys cannot be written."""
    return writable_windows(output, info.data.get("windows"))


def writable_windows(output: OutputWindows, windows: Windows) -> OutputWindows:
    """Return how the output names windows that the input names so; raise InvalidValue if it cannot."""
    if output == "kafka" and windows in ("none", "ignore"):
        raise InvalidValue("the input's keys have no windows", "remove it")
    if output == "kafka" and windows == "headers":
        raise InvalidValue(
            "the input's headers do not say whether windows are sessions, whose keys have another format in Kafka",
            "name windows by headers in the output, too, or let the writer of the input write Kafka's format",
        )
    return output


InputWindowsInOutput = Annotated[OutputWindows, AfterValidator(check_output_windows)]
"""How an output names the windows that its input names; a field behind `windows`."""


class KeyRules(OperatorRules):
    """The options that decide what a key is: the record's key alone, or the record's key within its window."""

    windows: Windows = Field(default=None, validate_default=True)
    """Where a record names its window: in `headers`, or at the end of its key in Kafka's format: `{time: 1h}` for
    windows of that length, `session` for sessions. `none`: records that name a window are rejected. `ignore`: windows
    are not part of keys. Omitted: as declared by the operator in the same file that writes the topic, otherwise `none`.
    """

    @field_validator("windows")
    @classmethod
    def _none_by_default(cls, windows: Windows) -> Windows:
        return windows or "none"

    @property
    def windowed(self) -> bool:
        """Return whether windows are part of the key."""
        return self.windows not in ("none", "ignore")

    @classmethod
    def windows_before(cls, settings: Mapping[str, Any]) -> Windows:
        """Return the value of `windows` for settings written by a release that did not have this option."""
        return "ignore"

    def key_kind_conflict(self, before: KeyRules) -> dict[str, str]:
        """Return why keys held under `before` cannot be held under this configuration; empty if they can."""
        if self.windowed == before.windowed:
            return {}
        # rule: key-kind-fixed
        return {"windows": "one state cannot hold both windowed keys and plain keys"}


class OutputDeclaration(NamedTuple):
    """What an operator declares about the topic that it writes. None: the operator does not know.

    `closes_after`: how long after its end a window still changes, in ms. `key`, `value`: the types of keys and values,
    as a pipeline has them.
    """

    windows: Windows = None
    closes_after: int | None = None
    key_format: Format | None = None
    key: Any = None
    value: Any = None


def added_windows(config: KeyRules, output: OutputWindows) -> AddedWindows | None:
    """Return how an operator whose output records have the windows of its input adds them to the records.

    None: there are no windows, or the input's headers, which the output keeps, name them already.
    """
    if not config.windowed or config.windows == "headers":
        return None
    return "headers" if output == "headers" else "session" if config.windows == "session" else "time"


def output_windows_of(config: KeyRules, output: OutputWindows) -> Windows:
    """Return how records that an operator passes on name their windows in the output; None if that is unknown."""
    return config.windows if output == "kafka" or not config.windowed else "headers"


class Output(NamedTuple):
    """An output topic of an operator, and how windows are added to its records.

    `step`: of a pipeline, the step whose emissions are written there; None: all emissions are. `partitions`: of the
    topic, if keys decide in which of them records are; None: they are in the partition of their input's number.
    """

    topic: str
    step: str | None = None
    windows: AddedWindows | None = None
    partitions: int | None = None


class TableFacts(NamedTuple):
    """What readers of a table need to know about it.

    `history_retention`: how long the table keeps versions, ms; None: it keeps only the latest values. `windowed`:
    whether windows are part of its keys. `key_format`: the format of its keys; None: not declared.
    """

    history_retention: int | None
    windowed: bool = False
    key_format: Format | None = None


class InputKey(Config):
    """The keys of an input topic."""

    windows: Windows = None
    """Same as the operator's `windows`."""
    of: Format = "bytes"
    """Same as the operator's `key_format`."""


class InputTopic(Config):
    """An input topic and a description of its keys."""

    topic: str | list[str]
    """Name of the topic, or the names of several, whose records are merged by time."""
    key: InputKey = InputKey()
    """Description of its keys."""


class OutputKey(Config):
    """The keys of an output topic."""

    windows: OutputWindows = "headers"
    """Same as the operator's `output_windows`."""


class OutputTopic(Config):
    """An output topic and a description of its keys."""

    topic: str
    """Name of the topic."""
    key: OutputKey = OutputKey()
    """Description of its keys."""


def _input(value: object) -> object:
    if isinstance(value, Mapping):
        raise InvalidValue(
            "not a topic", "write input: NAME, or input: {topic: NAME, key: {windows: headers, of: string}}"
        )
    if isinstance(value, list | tuple):  # one that `flatten_topics` could not take apart
        cause = "further topics are named twice" if value else "no topic is named"
        raise InvalidValue(cause, "write input: NAME, or input: [NAME, NAME]")
    return value


MOST_INPUTS = 32
"""Of one operator: a batch reads as much of all of them together as of one."""


def topics_problem(topics: Sequence[object]) -> InvalidValue | None:
    """Return what is wrong with the names of an operator's input topics, taken together; None if nothing is."""
    if not topics:
        return InvalidValue("no topic is named", "name one topic, or several")
    if len(topics) > MOST_INPUTS:
        return InvalidValue(f"{len(topics)} topics are too many to merge", f"name at most {MOST_INPUTS}")
    if twice := [topic for at, topic in enumerate(topics) if topic in topics[:at]]:
        return InvalidValue(f"topic {twice[0]} is named twice", "name each topic once")
    return None


def _output(value: object) -> object:
    if isinstance(value, Mapping):
        raise InvalidValue("not a topic", "write output: NAME, or output: {topic: NAME, key: {windows: kafka}}")
    return value


_OF_KEYS = {"input": {"windows": "windows", "of": "key_format"}, "output": {"windows": "output_windows"}}
"""The entries of a topic's `key`, and the operator's option that each of them sets."""


def flatten_topics(raw: Mapping[str, Any]) -> dict[str, Any]:
    """Return an operator's raw configuration with topics as plain names and their `key` entries as options.

    A pipeline may describe the types of its input's keys and values with the topic, and an output as the last step. A
    topic that is described in another form stays as it is; it is refused when the configuration is read.
    """
    flat = _without_types(_without_sink(raw))
    for side, options in _OF_KEYS.items():
        topic = flat.get(side)
        if isinstance(topic, Mapping) and {"topic"} <= set(topic) <= {"topic", "key"}:
            key = topic.get("key", {})
            if isinstance(key, Mapping) and set(key) <= set(options) and not {options[name] for name in key} & set(raw):
                flat |= {side: topic["topic"]} | {options[name]: value for name, value in key.items()}
    return _with_further_inputs(flat)


def _with_further_inputs(raw: dict[str, Any]) -> dict[str, Any]:
    """Return the configuration with the first of several input topics as the input, and the others beside it."""
    topics = raw.get("input")
    if not isinstance(topics, list | tuple) or not topics or "further_inputs" in raw:
        return raw
    first, *others = topics
    return {**raw, "input": first, **({"further_inputs": others} if others else {})}


def with_one_input(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return an operator's options with its input topics in one list, if there are several."""
    if not options.get("further_inputs") or "input" not in options:
        return dict(options)
    left = {name: value for name, value in options.items() if name != "further_inputs"}
    return {**left, "input": [options["input"], *options["further_inputs"]]}


def _without_sink(raw: Mapping[str, Any]) -> dict[str, Any]:
    """Return the configuration with the last step `{to: TOPIC, key: kafka_windows, partitions: N}` as the output."""
    steps = raw.get("steps")
    last = steps[-1] if isinstance(steps, list) and steps else None
    if not isinstance(last, Mapping) or not {"to"} <= set(last) <= {"to", "key", "partitions"} or "output" in raw:
        return dict(raw)
    if last.get("key", "kafka_windows") != "kafka_windows":
        return dict(raw)
    windows = {"output_windows": "kafka"} if "key" in last else {}
    by_keys = {"output_partitions": last["partitions"]} if "partitions" in last else {}
    return {**raw, "steps": raw["steps"][:-1], "output": last["to"], **windows, **by_keys}


def _without_types(raw: Mapping[str, Any]) -> dict[str, Any]:
    """Return the configuration with the types of a pipeline's input beside the name of its topic."""
    topic = raw.get("input")
    if "steps" not in raw or not isinstance(topic, Mapping) or not set(topic) <= {"topic", "key", "value"}:
        return dict(raw)
    types = {side: topic[side] for side in ("key", "value") if isinstance(topic.get(side), str) or side == "value"}
    types = {side: type for side, type in types.items() if side in topic and side not in raw}
    left = {name: value for name, value in topic.items() if name not in types}
    return {**raw, "input": left["topic"] if set(left) == {"topic"} else left, **types}


def _inputs(known: Mapping[str, Any]) -> tuple[Any, ...]:
    """Return the input topics, as far as they are known already."""
    first = (known["input"],) if "input" in known else ()
    return (*first, *known.get("further_inputs", ()))


class OperatorConfig(OperatorRules):
    """An operator of a configuration file: its rules and its topics."""

    input: Annotated[Topic, BeforeValidator(_input, json_schema_input_type=str | list[str] | InputTopic)]
    """Topic to read; with a description of its keys: `{topic: NAME, key: {windows: headers, of: string}}`. Several, as
    `[NAME, NAME]`, are merged by time."""
    further_inputs: tuple[Topic, ...] = ()
    """The topics to read behind the first, if `input` does not name all of them: with as many partitions, and with keys
    and values of the same types."""
    output: Annotated[Topic | None, BeforeValidator(_output, json_schema_input_type=str | OutputTopic | None)] = None
    """Topic for the emissions, also as `{topic: NAME, key: {windows: kafka}}`; omitted: they stay in the lake."""
    dead_letters: Topic | None = None
    """Topic for dead letters, which are late and rejected records; omitted: they stay in the lake."""
    idle_after: Duration | None = None
    """Wall-clock time without a record after which stream time advances on its own; default: never."""

    @field_validator("further_inputs")
    @classmethod
    def _inputs_can_be_merged(cls, topics: tuple[str, ...], info: ValidationInfo) -> tuple[str, ...]:
        if topics and cls.streams > 1:
            remedy = "merge the topics into another one with a pipeline, and read that"
            raise InvalidValue("an operator of two streams cannot merge topics", remedy)
        if topics and (problem := topics_problem(_inputs({**info.data, "further_inputs": topics}))) is not None:
            raise problem
        return topics

    @field_validator("output")
    @classmethod
    def _output_is_not_the_input(cls, topic: str | None, info: ValidationInfo) -> str | None:
        if topic is not None and topic in _inputs(info.data):
            raise InvalidValue("it is also the input, so the operator would read what it writes", "name another topic")
        return topic

    @model_validator(mode="before")
    @classmethod
    def _with_flat_topics(cls, raw: Any) -> Any:
        return flatten_topics(raw) if isinstance(raw, Mapping) else raw

    @field_validator("dead_letters")
    @classmethod
    def _dead_letters_are_separate(cls, topic: str | None, info: ValidationInfo) -> str | None:
        if topic is not None and topic in (*_inputs(info.data), info.data.get("output")):
            raise InvalidValue("it is also the input or the output of this operator", "name another topic")
        return topic

    @property
    def inputs(self) -> tuple[str, ...]:
        """Return the topics that are read as streams; the first one is `input`."""
        return (self.input, *self.further_inputs)

    def as_table(self) -> TableFacts | None:
        """Return what readers of this operator's table need to know about it; None if it is not a table."""
        return None

    def table_conflicts(self, table: TableFacts, step: str | None = None) -> Iterator[InvalidValue]:
        """Yield the reasons why this operator cannot read such a table."""
        yield from ()

    def writes(self) -> OutputDeclaration:
        """Return what this operator declares about its output topic."""
        return OutputDeclaration(key_format=self.explicit_key_format)

    def outputs(self) -> tuple[Output, ...]:
        """Return the topics for the emissions; none if these stay in the lake."""
        return () if self.output is None else (Output(self.output, None, self.adds_windows()),)

    def declares(self, topic: str) -> OutputDeclaration:
        """Return what this operator declares about one of its output topics."""
        return self.writes()

    @classmethod
    def inferred_options(cls, raw: Mapping[str, Any], topic: OutputDeclaration) -> dict[str, Any]:
        """Return the options that the writer of the input topic determines. They apply where `raw` lacks them."""
        found: dict[str, Any] = {"key_format": topic.key_format}
        if issubclass(cls, KeyRules):
            found["windows"] = topic.windows
        return {option: value for option, value in found.items() if value is not None}

    def conflicts(self, topic: OutputDeclaration) -> Iterator[tuple[str, InvalidValue]]:
        """Yield each option that contradicts the writer of the input topic, and how."""
        if topic.key_format is not None and self.key_format != topic.key_format:
            cause = f"the operator that writes the topic declares {topic.key_format}"
            yield "key_format", InvalidValue(cause, "write the same, or leave it out")
        if isinstance(self, KeyRules) and topic.windows is not None and self.windows not in (topic.windows, "ignore"):
            written = _as_written(topic.windows)
            cause = f"the operator that writes the topic names windows by {written}"
            yield "windows", InvalidValue(cause, f"write windows: {written}, or leave it out")

    @property
    def explicit_key_format(self) -> Format | None:
        """Return the format of keys; None if it is only the default."""
        is_given = "key_format" in self.model_fields_set or self.key_format != "bytes"
        return self.key_format if is_given and isinstance(self.key_format, str) else None

    def adds_windows(self) -> AddedWindows | None:
        """Return how windows are added to output records; None if there are none or the records name them already."""
        return None

    def functions(self) -> tuple[str, ...]:
        """Return the user-defined functions that this operator calls, each as `module:function`."""
        return ()


def _as_written(windows: Windows) -> str:
    return f"{{time: {format_duration_ms(windows.time)}}}" if isinstance(windows, TimeWindows) else str(windows)


Model = TypeVar("Model", bound=BaseModel)


def read(model: type[Model], raw: Mapping[str, Any], where: str = "") -> Model:
    """Return the configuration that `raw` describes. Raise ConfigurationError with all problems at once."""
    try:
        return model.model_validate(raw)
    except ValidationError as error:
        raise ConfigurationError(problems_of(error, where, _secrets(model))) from None


def _secrets(model: type[BaseModel]) -> list[str]:
    """Return the fields whose values must not be shown.

    These are fields of a secret type, and fields left out of `repr` because they contain secrets.
    """
    return [
        name for name, field in model.model_fields.items() if "SecretStr" in str(field.annotation) or not field.repr
    ]
