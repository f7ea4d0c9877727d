"""The configuration of a pipeline: what its input is, its steps, and where its results go."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Annotated, Any, Literal

import pyarrow as pa
from pydantic import PlainSerializer, PlainValidator, ValidationInfo, field_validator, model_validator

from tidegate.contracts.config import (
    AddedWindows,
    KeyRules,
    OperatorConfig,
    OperatorRules,
    OutputDeclaration,
    OutputWindows,
    TableFacts,
    TableRead,
    TimeWindows,
    Windows,
    added_windows,
    check_output_windows,
    flatten_topics,
    output_windows_of,
)
from tidegate.contracts.errors import InvalidValue
from tidegate.contracts.values import Values, as_written, schema_of
from tidegate.operators.pipeline.rules.places import KeyType, Place, as_config
from tidegate.operators.pipeline.rules.reading import Reading
from tidegate.operators.pipeline.rules.steps import Filter, Require, Select, Stateful, Stateless, StepRules, WithColumns
from tidegate.operators.registry import config_type

__all__ = ["Filter", "PipelineConfig", "PipelineRules", "Require", "Select", "Stateful", "Stateless", "WithColumns"]


def _read_value(value: object) -> Any:
    if value in ("bytes", "string") or isinstance(value, pa.Schema):
        return value
    if isinstance(value, Mapping) and set(value) == {"json"}:
        return schema_of(value["json"])
    raise InvalidValue("not a type of values", "write value: bytes, string, or {json: {NAME: TYPE}}")


def _value_as_written(value: str | pa.Schema) -> Any:
    return value if isinstance(value, str) else {"json": as_written(value)}


ValueType = Annotated[
    Literal["bytes", "string"] | pa.Schema,
    PlainValidator(_read_value, json_schema_input_type=Literal["bytes", "string"] | dict[Literal["json"], Any]),
    PlainSerializer(_value_as_written, when_used="json"),
]


def _steps_as_written(steps: tuple[StepRules, ...]) -> list[dict[str, Any]]:
    return [step.model_dump(mode="json") for step in steps]


def _read_steps(raw: Any, info: ValidationInfo) -> tuple[StepRules, ...]:
    if isinstance(raw, tuple) and all(isinstance(step, StepRules) for step in raw):
        raw = _steps_as_written(raw)
    known = info.data
    shared: dict[str, Any] = {
        name: known[name] for name in ("timestamp", "max_ahead", "rewind_window") if name in known
    }
    reading = Reading(_start(known), shared)
    reading.read(raw)
    return tuple(reading.steps)


def _start(known: Mapping[str, Any]) -> Place:
    """Return the place behind the input."""
    windows: Windows = known.get("windows") or "none"
    length = windows.time if isinstance(windows, TimeWindows) else None
    value = known.get("value", "bytes")
    values = Values.of_fields(value) if isinstance(value, pa.Schema) else _VALUES[value]()
    return Place(key=known.get("key", "bytes"), values=values, windows=windows, length=length, is_input=True)


_VALUES = {"bytes": Values.of_bytes, "string": Values.of_text}

Steps = Annotated[
    tuple[StepRules, ...],
    PlainValidator(_read_steps, json_schema_input_type=list[Stateful | Stateless]),
    PlainSerializer(_steps_as_written, return_type=list[dict[str, Any]], when_used="json"),
]


class PipelineRules(KeyRules):
    """The rules of a pipeline: steps that pass rows to each other, with one log, one commit and one state."""

    kind: Literal["pipeline"] = "pipeline"
    """Kind of operator."""
    key: KeyType = "bytes"
    """Type of the input's keys, in which expressions read them: `bytes`, `string`, `int16`, `int32` or `int64`."""
    value: ValueType = "bytes"
    """Type of the input's values: `bytes`, `string`, or `{json: {NAME: TYPE}}` with the fields that steps read."""
    time: Literal["pipeline", "records"] = "pipeline"
    """What moves the time of a step: rows and the time of the steps before it, or with `records`, as in Kafka Streams,
    the rows that arrive at it alone."""
    steps: Steps
    """The steps, in order: `{name: NAME, kind: KIND, ...}` with the options of that kind; `{filter: SQL}`, `{require:
    SQL, reason: TEXT}`, `{with_columns: {NAME: SQL}}`, `{select: {NAME: SQL}}`. The last may be `{to: TOPIC}`."""

    @model_validator(mode="before")
    @classmethod
    def _formats_follow_types(cls, raw: Any) -> Any:
        """Show keys and values in views as their types say, unless their formats are given."""
        if not isinstance(raw, Mapping):
            return raw
        raw, formats = flatten_topics(raw), {}
        if raw.get("key") == "string":
            formats["key_format"] = "string"
        if raw.get("value") == "string" or isinstance(raw.get("value"), Mapping | pa.Schema):
            formats["value_format"] = "string" if raw.get("value") == "string" else "json"
        return {**formats, **raw}

    @property
    def operators(self) -> dict[str, OperatorRules]:
        """Return the rules of the steps that hold state, by name, each complete."""
        return {step.name: step.rules for step in self.steps if isinstance(step, Stateful)}

    def places(self) -> list[Place]:
        """Return the place before each step, and the one behind the last."""
        reading = Reading(_start(dict(self)), {})
        reading.read(_steps_as_written(self.steps))
        return reading.places

    def holds(self) -> dict[str, int | None]:
        """Return by step how far the marks that it passes on stay behind its stream time, ms; None: it passes none."""
        before = zip(self.steps, self.places(), strict=False)
        return {step.name: step.rules.hold(place.length) for step, place in before if isinstance(step, Stateful)}

    def hold(self, length: int | None) -> int | None:
        """Return the sum of the steps' holds; None if one of them passes no marks on."""
        holds = [hold for hold in self.holds().values() if hold is not None]
        return sum(holds) if len(holds) == len(self.operators) else None

    def closed_kept_for_ms(self) -> int | None:
        """Return for how long all steps still know closed windows, ms; None if no step has any."""
        kept = [rules.closed_kept_for_ms() for rules in self.operators.values()]
        return min((each for each in kept if each is not None), default=None)

    def reads(self) -> TableRead | None:
        """Return the table that one of the steps reads, or None."""
        return next((read for rules in self.operators.values() if (read := rules.reads()) is not None), None)


class PipelineConfig(PipelineRules, OperatorConfig):
    """The configuration of a pipeline between topics."""

    output_windows: OutputWindows = "headers"
    """How results name their windows: in `headers`, or with `kafka` in the key, in Kafka's format."""

    @field_validator("output_windows")
    @classmethod
    def _output_windows_fit_keys(cls, output: OutputWindows, info: ValidationInfo) -> OutputWindows:
        if "steps" not in info.data:
            return output
        if (maker := _maker_of_windows(info.data["steps"])) is None:
            return check_output_windows(output, info)
        written = maker.model_dump(mode="json", exclude_defaults=True) | {"input": "input", "output_windows": output}
        config_type(maker.kind).model_validate(written)
        return output

    def adds_windows(self) -> AddedWindows | None:
        """Return how windows are added to the results; None: their keys have none, or headers name them already."""
        maker = self._maker()
        return added_windows(self, self.output_windows) if maker is None else maker.adds_windows()

    def writes(self) -> OutputDeclaration:
        """Return what is known of the output topic: how it names windows, when these close, and the format of keys."""
        maker = self._maker()
        if maker is None:
            windows = output_windows_of(self, self.output_windows)
            return OutputDeclaration(windows=windows, key_format=self.explicit_key_format)
        return maker.writes()._replace(key_format=self.explicit_key_format)

    def _maker(self) -> OperatorConfig | None:
        """Return the step that puts windows into keys; None if there is none."""
        maker = _maker_of_windows(self.steps)
        return None if maker is None else as_config(maker).model_copy(update={"output_windows": self.output_windows})

    def functions(self) -> tuple[str, ...]:
        """Return the functions that the steps call."""
        return tuple(name for rules in self.operators.values() for name in as_config(rules).functions())

    def table_conflicts(self, table: TableFacts) -> Iterator[InvalidValue]:
        """Yield each reason why a step cannot read such a table."""
        for rules in self.operators.values():
            if rules.reads() is not None:
                read = as_config(rules).model_copy(update={"key_format": self.key_format})
                yield from read.table_conflicts(table)


def _maker_of_windows(steps: tuple[StepRules, ...]) -> OperatorRules | None:
    stateful = (step.rules for step in steps if isinstance(step, Stateful))
    return next((rules for rules in stateful if not isinstance(rules, KeyRules)), None)
