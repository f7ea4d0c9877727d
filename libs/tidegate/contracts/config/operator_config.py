"""An operator of a configuration file: its rules and its topics."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Annotated, Any, NamedTuple

from pydantic import BeforeValidator, ValidationInfo, field_validator, model_validator

from tidegate.contracts.config.key_rules import AddedWindows, KeyRules, TimeWindows, Windows
from tidegate.contracts.config.option_types import Duration, Format, Topic
from tidegate.contracts.config.rules import OperatorRules
from tidegate.contracts.config.topics import InputTopic, OutputTopic, flatten_topics, topics_problem
from tidegate.contracts.errors import InvalidValue
from tidegate.contracts.event_time import format_duration_ms


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


def _input(value: object) -> object:
    if isinstance(value, Mapping):
        raise InvalidValue(
            "not a topic", "write input: NAME, or input: {topic: NAME, key: {windows: headers, of: string}}"
        )
    if isinstance(value, list | tuple):  # one that `flatten_topics` could not take apart
        cause = "further topics are named twice" if value else "no topic is named"
        raise InvalidValue(cause, "write input: NAME, or input: [NAME, NAME]")
    return value


def _output(value: object) -> object:
    if isinstance(value, Mapping):
        raise InvalidValue("not a topic", "write output: NAME, or output: {topic: NAME, key: {windows: kafka}}")
    return value


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
