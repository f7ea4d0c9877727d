"""Configuration of a windowed aggregation: its windows, its aggregates, and when results are emitted."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, ClassVar, Literal

import pyarrow as pa
from pydantic import Field, ValidationInfo, field_validator

from tidegate.contracts.config.key_rules import AddedWindows, OutputWindows, TimeWindows, Windows
from tidegate.contracts.config.operator_config import OperatorConfig, OutputDeclaration
from tidegate.contracts.config.option_types import Count, Duration
from tidegate.contracts.config.rules import JsonField, OperatorRules
from tidegate.contracts.errors import InvalidValue
from tidegate.contracts.event_time import MAX_TIMESTAMP
from tidegate.contracts.values import PRIMITIVES, Values
from tidegate.operators.options.bounds import StrictBuffer
from tidegate.operators.windowed_aggregation.config.aggregates import Aggregates, Entry
from tidegate.operators.windowed_aggregation.config.evictors import (
    CountEvictor,
    DeltaEvictor,
    Evictor,
    FunctionEvictor,
    TimeEvictor,
)
from tidegate.operators.windowed_aggregation.config.windows import (
    Hopping,
    Session,
    Tumbling,
    Unlimited,
    Window,
    closes_after,
    least_retention,
)

__all__ = [
    "Aggregates",
    "CountEvictor",
    "DeltaEvictor",
    "Entry",
    "FunctionEvictor",
    "Hopping",
    "JsonField",
    "Session",
    "TimeEvictor",
    "Tumbling",
    "Unlimited",
    "WindowedAggregationConfig",
    "WindowedAggregationRules",
    "least_retention",
]


class WindowedAggregationRules(OperatorRules):
    """Rules of an operator that aggregates the records of each key in windows of event time."""

    live: ClassVar[frozenset[str]] = frozenset({"window", "retention", "buffer"})

    kind: Literal["windowed_aggregation"] = "windowed_aggregation"
    """Kind of operator."""
    window: Window
    """`{tumbling: 1h, grace: 2h}`, `{hopping: 1h, advance: 10m, grace: 0}`, `{session: 30m, grace: 0}`, or
    `{unlimited: true}`.
    """
    aggregate: Aggregates
    """What is computed: `{NAME: count, NAME: {max: FIELD}}` with any names, or `{count: true, max: {field: FIELD}}`
    with one result of each kind: count, sum, min, max, avg, first, last, collect; or `{function: module:function}`.
    """
    every: Annotated[Count, Field(ge=1)] | None = None
    """Instead of `emit`: a result after every so many records of the window."""
    emit: Literal["updates", "on_time", "final"] | None = Field(default=None, validate_default=True)
    """`updates`: every change. `on_time`: when the window ends, then every change. `final`: once, when it closes."""
    evictor: Evictor = None
    """Which elements a window loses when a result is emitted: `{count: 100}`, `{time: 5m}`, `{delta: ...}`, or
    `{function: module:function}`; each removes them before the value is computed, or with `when: after` afterwards.
    """
    retention: Duration | None = Field(default=None, validate_default=True)
    """How long windows are kept, from their start (sessions: from their end); default: until they close."""
    buffer: StrictBuffer | None = None
    """With `emit: final`: how many windows may be open, and what to do if there are more; omitted: any number."""

    @field_validator("emit")
    @classmethod
    def _emit_fits_every(cls, emit: str | None, info: ValidationInfo) -> str | None:
        if emit is None and info.data.get("every", 0) is None:
            raise InvalidValue("required without `every`", "write emit: updates, on_time or final, or every: 100")
        if emit is not None and info.data.get("every"):
            raise InvalidValue("`every` already decides when results are emitted", "remove emit")
        return emit

    @field_validator("emit")
    @classmethod
    def _emit_fits_window(cls, emit: str | None, info: ValidationInfo) -> str | None:
        if emit not in (None, "updates") and isinstance(info.data.get("window"), Unlimited):
            raise InvalidValue("an unlimited window never ends, so nothing would be emitted", "write emit: updates")
        return emit

    @field_validator("evictor")
    @classmethod
    def _evictor_finds_records(cls, evictor: Evictor, info: ValidationInfo) -> Evictor:
        if evictor is not None and _reduces(info):
            raise InvalidValue("merged records cannot be removed from a window", "remove evictor, or reduce")
        return evictor

    @field_validator("retention")
    @classmethod
    def _retention_covers_grace(cls, retention: int | None, info: ValidationInfo) -> int | None:
        window = info.data.get("window")
        if retention is None or window is None:
            return retention
        if isinstance(window, Unlimited):
            raise InvalidValue("an unlimited window is kept for ever", "remove retention")
        if retention < least_retention(window):
            raise InvalidValue(
                "windows would expire before they close",
                "write at least the windows' length (sessions: gap) plus their grace",
            )
        return retention

    @field_validator("buffer")
    @classmethod
    def _buffer_fits_emit(cls, buffer: StrictBuffer | None, info: ValidationInfo) -> StrictBuffer | None:
        if buffer is not None and info.data.get("emit", "final") != "final":
            raise InvalidValue("only final results are held back", "write emit: final, or remove buffer")
        if buffer is not None and buffer.max_bytes is not None and _reduces(info):
            # Records are merged once per batch, so the bytes before that depend on where a batch ends.
            raise InvalidValue("the bytes of windows whose records are merged have no bound", "write max_keys")
        return buffer

    @property
    def keeps_elements(self) -> bool:
        """Return True if windows keep their elements, not their aggregates alone."""
        return self.evictor is not None or self.every is not None or self.aggregate.needs_elements

    def closed_kept_for_ms(self) -> int | None:
        """Return how far behind stream time closed windows are still known, in ms; None for unlimited windows.

        A closed window is kept until it expires, so that no late record opens it again.
        """
        if isinstance(self.window, Unlimited):
            return None
        return least_retention(self.window) if self.retention is None else self.retention

    def results(self, values: Values, emits: pa.Schema | None) -> Values:
        """Return the aggregates: one as a bare value of its name, several as an object."""
        if self.aggregate.reduce is not None:
            return _reduced(self.aggregate.reduce.emits, values)
        if self.aggregate.function is not None:
            return Values.of_bytes() if emits is None else Values.of_fields(emits)
        if values.form == "joined" and self.aggregate.reads_fields:
            raise InvalidValue(
                "values of a join are {stream: ..., table: ...}, and aggregates read fields of objects",
                "put with_columns or select before the aggregation, whose results are objects of fields",
            )
        return self.aggregate.results(values)

    def unknown_fields(self, values: Values) -> Iterator[tuple[str, InvalidValue]]:
        """Yield fields of aggregates that the values are known to lack, or not to have numbers in."""
        return (("aggregate", problem) for problem in self.aggregate.unknown_fields(values))

    def reads_json(self) -> bool:
        """Return whether aggregates read fields, or whole values."""
        counts = all(entry.kind == "count" for entry in self.aggregate.entries)
        return self.aggregate.reduce is not None or not counts

    def held_columns(self, values: Values) -> pa.Schema:
        """Return the columns that aggregates read; all of them if windows keep their elements."""
        if self.aggregate.reduce is not None:
            return self.aggregate.reduce.emits
        sources = [entry.source for entry in self.aggregate.entries if entry.kind != "count"]
        if self.keeps_elements or True in sources:
            return values.schema
        read = {source.names[0] for source in sources if isinstance(source, JsonField)}
        return pa.schema([field for field in values.schema if field.name in read])

    def hold(self, length: int | None) -> int:
        """Return how old the start of a window may be whose result is still to come."""
        if self.emit == "final":
            return least_retention(self.window)
        grace = 0 if isinstance(self.window, Unlimited) else self.window.grace
        return least_retention(self.window) - grace if self.emit == "on_time" else 0

    def incompatibilities(self, before: OperatorRules, known: int = MAX_TIMESTAMP) -> dict[str, str]:
        """Return why windows held under `before` cannot continue under this configuration; empty if they can.

        A session's `max_length` may change. A window's grace may change, but windows that have closed must still be
        known for as long as the new grace lasts.
        """
        assert isinstance(before, WindowedAggregationRules)
        may_change = {"grace", "max_length"}
        if self.window.model_dump(exclude=may_change) != before.window.model_dump(exclude=may_change):
            return {"window": "the held windows have another kind or length"}
        if isinstance(self.window, Unlimited) or isinstance(before.window, Unlimited):
            return {}
        remembered = min(known, before.closed_kept_for_ms() or 0)
        if self.window.grace > before.window.grace and least_retention(self.window) > remembered:
            return {"window": "closed windows are forgotten before this grace is over, and would open again"}
        return {}


def _reduces(info: ValidationInfo) -> bool:
    """Return whether the windows' records are merged by a function."""
    aggregate = info.data.get("aggregate")
    return isinstance(aggregate, Aggregates) and aggregate.reduce is not None


def _reduced(fields: pa.Schema, values: Values) -> Values:
    """Return values with the merged fields; raise InvalidValue if values are known, and are no objects with these."""
    known = values.schema if values.form == "object" else pa.schema([])
    lacking = [] if values.form in PRIMITIVES else [field for field in fields if field not in list(known)]
    if lacking:
        name, type = lacking[0].name, lacking[0].type
        raise InvalidValue(
            f"reduce merges the field {name} of type {type}, which values do not have",
            "make it before the windows: select, or map with the same `emits`",
        )
    return Values.of_fields(fields)


class WindowedAggregationConfig(WindowedAggregationRules, OperatorConfig):
    """A windowed aggregation between two topics."""

    output_windows: OutputWindows = "headers"
    """How results name their windows: in `headers`, or with `kafka` in the key, in Kafka's format."""

    @field_validator("output_windows")
    @classmethod
    def _output_windows_fit_window(cls, output: OutputWindows, info: ValidationInfo) -> OutputWindows:
        if output == "kafka" and isinstance(info.data.get("window"), Unlimited):
            raise InvalidValue(
                "Kafka's format of keys has no unlimited windows",
                "write output: {topic: NAME, key: {windows: headers}}",
            )
        return output

    def adds_windows(self) -> AddedWindows:
        """Return how the results name their windows."""
        if self.output_windows == "headers":
            return "headers"
        return "session" if isinstance(self.window, Session) else "time"

    def writes(self) -> OutputDeclaration:
        """Return what is known of the output topic: how it names windows, when these close, and the format of keys."""
        return OutputDeclaration(
            windows=self._output_format(), closes_after=closes_after(self.window), key_format=self.explicit_key_format
        )

    def _output_format(self) -> Windows:
        match self.window:
            case _ if self.output_windows == "headers":
                return "headers"
            case Tumbling():
                return TimeWindows(time=f"{self.window.tumbling}ms")
            case Hopping():
                return TimeWindows(time=f"{self.window.hopping}ms")
        return "session"

    def functions(self) -> tuple[str, ...]:
        """Return the names of the functions of evictor and aggregate."""
        named: list[object] = [self.aggregate.alone]
        if isinstance(self.evictor, FunctionEvictor):
            named += self.evictor.functions()
        elif isinstance(self.evictor, DeltaEvictor):
            named.append(self.evictor.delta.distance)
        return tuple(name for name in named if isinstance(name, str))
