"""The configuration of a pipeline: what its input is, its steps, and where its results go."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Annotated, Any, ClassVar, Literal

import pyarrow as pa
from pydantic import Field, PlainSerializer, PlainValidator, ValidationInfo, field_validator, model_validator
from pydantic.json_schema import SkipJsonSchema

from tidegate.contracts.config.key_rules import AddedWindows, KeyRules, OutputWindows, TimeWindows, Windows
from tidegate.contracts.config.operator_config import OperatorConfig, Output, OutputDeclaration, TableFacts
from tidegate.contracts.config.option_types import Partitions, ShownAs
from tidegate.contracts.config.rules import Held, OperatorRules, PartChange, TableRead, holds_nothing
from tidegate.contracts.config.topics import flatten_topics
from tidegate.contracts.errors import InvalidValue
from tidegate.contracts.event_time import MAX_TIMESTAMP
from tidegate.contracts.values import Values
from tidegate.operators.pipeline.rules import own_table, shown, sinks
from tidegate.operators.pipeline.rules.changes import Chain, changes_of_results, changes_of_steps
from tidegate.operators.pipeline.rules.graph import Graph
from tidegate.operators.pipeline.rules.places import Place, as_config
from tidegate.operators.pipeline.rules.reading import BY_KEYS, Reading, check_partitions
from tidegate.operators.pipeline.rules.steps import (
    Called,
    Encode,
    Filter,
    FilterBy,
    FlatMap,
    Map,
    Require,
    Select,
    SelectKey,
    Sink,
    Stateful,
    Stateless,
    StepRules,
    WithColumns,
    call_of,
    steps_as_written,
)
from tidegate.operators.pipeline.rules.value_types import (
    HeaderTypes,
    KeyType,
    ValueType,
    shown_as,
    type_of,
    value_as_written,
    values_of,
)

__all__ = [
    "Encode",
    "Filter",
    "FilterBy",
    "FlatMap",
    "Map",
    "PipelineConfig",
    "PipelineRules",
    "Require",
    "Select",
    "SelectKey",
    "Sink",
    "Stateful",
    "Stateless",
    "WithColumns",
]


def _read_steps(raw: Any, info: ValidationInfo) -> tuple[StepRules, ...]:
    if isinstance(raw, tuple) and all(isinstance(step, StepRules) for step in raw):
        raw = steps_as_written(raw)
    known = info.data
    if not known.keys() >= _TYPES:
        return ()  # what expressions read is unknown
    shared: dict[str, Any] = {
        name: known[name] for name in ("timestamp", "max_ahead", "rewind_window") if name in known
    }
    taken = {known[role]: said for role, said in _ROLES.items() if known.get(role)}
    taken |= dict.fromkeys(known.get("further_inputs", ()), _ROLES["input"])
    reading = Reading(_start(known), shared, taken)
    reading.read(raw)
    if (table := known.get("table")) is not None:
        own_table.check(table, reading.steps, reading.places)
    return tuple(reading.steps)


_TYPES = {"key", "value", "headers"}
"""Options that say what steps read; one that is refused is a problem of its own."""
_ROLES = {"input": "also the input", "output": "written by the last step", "dead_letters": "that of dead letters"}
"""Topics that no other step may write, and what they are."""


@lru_cache(maxsize=64)
def _places(steps: tuple[StepRules, ...], start: Place) -> tuple[Place, ...]:
    reading = Reading(start, {})
    reading.read(steps_as_written(steps))
    return tuple(reading.places)


def _start(known: Mapping[str, Any]) -> Place:
    """Return the place behind the input."""
    windows: Windows = known.get("windows") or "none"
    length = windows.time if isinstance(windows, TimeWindows) else None
    values = values_of(known.get("value", "bytes"))
    return Place(
        key=known.get("key", "bytes"),
        values=values,
        headers=known.get("headers", ()),
        windows=windows,
        length=length,
        is_input=True,
        takes_back=known.get("time") != "records",
    )


Steps = Annotated[
    tuple[StepRules, ...],
    PlainValidator(_read_steps, json_schema_input_type=list[Stateful | Stateless | Sink]),
    PlainSerializer(steps_as_written, return_type=list[dict[str, Any]], when_used="json"),
]


OwnTable = Annotated[
    Stateful | None,
    PlainValidator(own_table.read, json_schema_input_type=Stateful | None),
    PlainSerializer(own_table.as_written, when_used="json"),
]


class PipelineRules(KeyRules):
    """The rules of a pipeline: steps that pass rows to each other, with one log, one commit and one state."""

    live: ClassVar[frozenset[str]] = frozenset({"headers", "steps", "output_partitions"})

    kind: Literal["pipeline"] = "pipeline"
    """Kind of operator."""
    key: KeyType = "bytes"
    """Type of the input's keys, in which expressions read them: a format of Kafka's own serializers, which are `bytes`,
    `string`, `int16`, `int32`, `int64`, `float32`, `float64` and `uuid`; `{avro: {schema: SCHEMA, schemas: URL}}` (or a
    folder), or `{protobuf: {schema: TEXT, message: NAME, schemas: URL}}`."""
    value: ValueType = "bytes"
    """Type of the input's values: as of keys, `{json: {NAME: TYPE}}` with the fields that steps read,
    `{avro: {schema: SCHEMA, schemas: URL}}` (or a folder), or `{protobuf: {schema: TEXT, message: NAME, schemas:
    URL}}`."""
    headers: HeaderTypes = ()
    """Types of the headers that expressions read, as `headers.NAME`: `{NAME: TYPE}` with a format of Kafka's own
    serializers. Of several headers with one name the last one counts; one that a record lacks is null."""
    time: Literal["pipeline", "records"] = "pipeline"
    """What moves the time of a step: rows and the time of the steps before it, or with `records`, as in Kafka Streams,
    the rows that arrive at it alone. With `records`, steps that read values reject nulls behind windows, too."""
    table: SkipJsonSchema[OwnTable] = None
    """The table whose rows are in the input, too, on DataFrames; a step joins the stream with it. Default: none is."""
    steps: Steps
    """The steps, in order: `{name: NAME, kind: KIND, ...}` with the options of that kind; `{filter: SQL}`, `{require:
    SQL, reason: TEXT}`, `{with_columns: {NAME: SQL}}`, `{select: {NAME: SQL}}`, `{encode: FORMAT}`, `{select_key:
    SQL}`, `{to: TOPIC}`; with a function of yours `{filter: {function: module:function}}`, `{map: module:function,
    emits: {NAME: TYPE}}`, `{flat_map: ...}` likewise. A step reads the one before it, or with `from: NAME` another
    one; `from: [NAME, NAME]` merges several."""

    @model_validator(mode="before")
    @classmethod
    def _formats_follow_types(cls, raw: Any) -> Any:
        """Show keys and values in views as their types say, unless their formats are given."""
        if not isinstance(raw, Mapping):
            return raw
        raw, formats = flatten_topics(raw), {}
        if (shown := shown_as(raw.get("key"))) is not None:
            formats["key_format"] = shown
        if (shown := shown_as(raw.get("value"))) is not None:
            formats["value_format"] = shown
        return {**formats, **raw}

    @property
    def operators(self) -> Mapping[str, OperatorRules]:
        """Return the rules of the steps that hold state, by name, each complete; those of a table of its own first."""
        return {step.name: step.rules for step in (self.table, *self.steps) if isinstance(step, Stateful)}

    @property
    def step_names(self) -> Sequence[str]:
        """Return the names of all steps that have one: those that hold state first."""
        return [*self.operators, *(step.name for step in self.steps if isinstance(step, Stateless) and step.name)]

    def places(self) -> tuple[Place, ...]:
        """Return the place before each step, and the one behind the last."""
        return _places(self.steps, _start(dict(self)))

    def shown(self, step: str | None = None) -> OperatorRules:
        """Return the rules with the formats in which views show results, or what a step with a name holds and emits."""
        if step is None:
            keys = shown.keys_of_results(self.steps, self.places(), self)
            values = shown.of_results(self.steps, self.places(), self)
            return self.model_copy(update={"key_format": keys, "value_format": values})
        rules = self.operators.get(step, self)
        is_own_table = self.table is not None and step == self.table.name
        form = rules.value_format if is_own_table else shown.of_step(self.steps, self.places(), self, step)
        keys = shown.keys_of_step(self.steps, self.places(), self, step)
        return rules.model_copy(update={"key_format": keys, "value_format": form})

    def shown_formats(self) -> set[ShownAs]:
        """Return the formats of keys and values that the views of all steps need."""
        found = [self.shown(name) for name in (None, *self.step_names)]
        return {self.key_format, *(each.key_format for each in found), *(each.value_format for each in found)}

    def holds(self) -> dict[str, int | None]:
        """Return by step how far the marks that it passes on stay behind its stream time, ms; None: it passes none."""
        before = zip(self.steps, self.places(), strict=False)
        return {step.name: step.rules.hold(place.length) for step, place in before if isinstance(step, Stateful)}

    def results(self, values: Values, emits: pa.Schema | None) -> Values:
        """Return what is known of the values behind the last step; those of the input are an option of the pipeline."""
        return self.places()[-1].values

    def hold(self, length: int | None) -> int | None:
        """Return the sum of the steps' holds; None if one of them passes no marks on."""
        holds = [hold for hold in self.holds().values() if hold is not None]
        return sum(holds) if len(holds) == len(self.holds()) else None

    def closed_kept_for_ms(self) -> int | None:
        """Return for how long the first step that holds state knows closed windows, ms; None if it has none."""
        first = next((step.rules for step in self.steps if isinstance(step, Stateful)), None)
        return None if first is None else first.closed_kept_for_ms()

    def part_changes(
        self, before: OperatorRules, known: int = MAX_TIMESTAMP, held: Held = holds_nothing
    ) -> dict[str, list[PartChange]]:
        """Return the changes of each step, and that of the input's values, which steps judge by what they hold."""
        assert isinstance(before, PipelineRules)
        was, now = (Chain.of(rules.steps, rules.places()) for rules in (before, self))
        values = [value_as_written(rules.value) for rules in (before, self)]
        return {
            "steps": [*changes_of_steps(was, now, held, known), *changes_of_results(before.steps, self.steps)],
            "value": [PartChange("value", *values)] if values[0] != values[1] else [],
        }

    def reads(self) -> tuple[TableRead, ...]:
        """Return how each step that joins reads a table of another operator, in the order of the steps."""
        if self.table is not None:
            return ()
        return tuple(
            read._replace(step=name, has_own_time=at > 0)
            for at, (name, rules) in enumerate(self.operators.items())
            for read in rules.reads()
        )


class PipelineConfig(PipelineRules, OperatorConfig):
    """The configuration of a pipeline between topics."""

    output_windows: OutputWindows = "headers"
    """How results name their windows: in `headers`, or with `kafka` in the key, in Kafka's format."""
    output_partitions: Annotated[Partitions | None, Field(validate_default=True)] = None
    """Number of partitions of the output topic; the keys decide in which of them results are, as with Kafka's own
    clients. Default: they are in the partition of their input's number."""

    @field_validator("table")
    @classmethod
    def _has_one_input(cls, table: Stateful | None) -> Stateful | None:
        if table is not None:
            raise InvalidValue(
                "the input has the records of a stream alone", "write the table as an operator of its own"
            )
        return table

    @field_validator("output_windows")
    @classmethod
    def _output_windows_fit_keys(cls, output: OutputWindows, info: ValidationInfo) -> OutputWindows:
        if "steps" not in info.data:
            return output
        last = _places(info.data["steps"], _start(info.data))[-1]
        return sinks.checked(output, last.maker, info.data.get("windows"))

    @field_validator("output_partitions")
    @classmethod
    def _output_partitions_fit_keys(cls, partitions: int | None, info: ValidationInfo) -> int | None:
        if "steps" not in info.data or "output" not in info.data:
            return partitions
        if info.data["output"] is not None:
            check_partitions(_places(info.data["steps"], _start(info.data))[-1], partitions)
        elif partitions is not None:
            raise InvalidValue("there is no output topic", f"add output: TOPIC, or write a step {BY_KEYS}")
        return partitions

    def part_changes(
        self, before: OperatorRules, known: int = MAX_TIMESTAMP, held: Held = holds_nothing
    ) -> dict[str, list[PartChange]]:
        """Return also what would give the topic of a step keys in two formats; `output_windows` speaks for itself."""
        assert isinstance(before, PipelineConfig)
        found, was = super().part_changes(before, known, held), {each.topic: each.windows for each in before.outputs()}
        mixed = [each.topic for each in self.outputs() if was.get(each.topic, each.windows) != each.windows]
        if mixed and self.output_windows == before.output_windows:
            found["steps"].append(PartChange("steps.to", refused=f"topic {mixed[0]} would have keys in two formats"))
        return found

    def adds_windows(self) -> AddedWindows | None:
        """Return how windows are added to the results; None: their keys have none, or headers name them already."""
        return sinks.added(self.output_windows, self.places()[-1].maker, self)

    def outputs(self) -> tuple[Output, ...]:
        """Return the topics of the results, each with the step whose emissions are written there."""
        graph, places = Graph(self.steps), self.places()
        found = [
            Output(
                topic=each.sink.to,
                step=each.node,
                windows=sinks.added(each.sink.output_windows, places[each.at].maker, self),
                partitions=each.sink.partitions,
            )
            for each in graph.written()
        ]
        if self.output is not None:
            found.append(Output(self.output, graph.last(), self.adds_windows(), self.output_partitions))
        return tuple(found)

    def declares(self, topic: str) -> OutputDeclaration:
        """Return what is known of one of the topics of results: as `writes` says of that of the last step."""
        for each in Graph(self.steps).written():
            if each.sink.to == topic:
                return self._declared(each.sink.output_windows, self.places()[each.at], each.sink.partitions)
        return self.writes()

    def writes(self) -> OutputDeclaration:
        """Return what is known of the output topic: how it names windows, when these close, and the format of keys."""
        return self._declared(self.output_windows, self.places()[-1], self.output_partitions)

    def _declared(self, output: OutputWindows, place: Place, partitions: int | None) -> OutputDeclaration:
        """Return what is known of a topic; the types of keys and values where keys decide its partitions."""
        found = sinks.declared(output, place.maker, self)
        keys = (shown_as(place.key) or "bytes") if place.rekeyed else self.explicit_key_format
        if partitions is None:
            return found._replace(key_format=keys)
        return found._replace(key_format=keys, key=value_as_written(place.key), value=type_of(place.values))

    @classmethod
    def inferred_options(cls, raw: Mapping[str, Any], topic: OutputDeclaration) -> dict[str, Any]:
        """Return also the types of keys and values, if the writer of the input knows them."""
        own = {"key": topic.key, "value": topic.value}
        known = {option: value for option, value in own.items() if value is not None}
        return super().inferred_options(raw, topic) | known

    def functions(self) -> tuple[str, ...]:
        """Return the functions that the steps call."""
        own = (call_of(step).function for step in self.steps if isinstance(step, Called))
        return (*own, *(name for rules in self.operators.values() for name in as_config(rules).functions()))

    def table_conflicts(self, table: TableFacts, step: str | None = None) -> Iterator[InvalidValue]:
        """Yield each reason why the step of that name cannot read such a table."""
        for each, place in zip(self.steps, self.places(), strict=False):
            if isinstance(each, Stateful) and each.name == step:
                read = as_config(each.rules).model_copy(update={"key_format": self.key_format})
                # rule: windows-looked-up-plain/conflict
                fits = place.windowed and not place.is_input
                yield from read.table_conflicts(table._replace(windowed=True) if fits else table)
