"""Configuration of a windowed aggregation: its windows, its aggregates, and when results are emitted."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, ClassVar, Literal, TypeAlias

import pyarrow as pa
from pydantic import BeforeValidator, Field, ValidationInfo, field_validator, model_validator

from tidegate.contracts.config import (
    AddedWindows,
    Config,
    Count,
    Duration,
    FieldName,
    FunctionName,
    OperatorConfig,
    OperatorRules,
    OutputDeclaration,
    OutputWindows,
    TimeWindows,
    Windows,
)
from tidegate.contracts.errors import InvalidValue
from tidegate.contracts.event_time import MAX_TIMESTAMP
from tidegate.contracts.naming import function_problem
from tidegate.contracts.values import Values
from tidegate.operators.bounds import StrictBuffer

Length = Annotated[Duration, Field(gt=0)]


class Tumbling(Config):
    """Windows of equal length, side by side."""

    tumbling: Length
    """Length of a window."""
    grace: Duration
    """How long after its end a window accepts late records."""


class Hopping(Config):
    """Windows of equal length, which overlap."""

    hopping: Length
    """Length of a window."""
    advance: Length
    """Time from the start of one window to the start of the next: at most the length."""
    grace: Duration
    """How long after its end a window accepts late records."""

    @field_validator("advance")
    @classmethod
    def _advance_fits_length(cls, advance: int, info: ValidationInfo) -> int:
        if advance > info.data.get("hopping", advance):
            raise InvalidValue(
                "records between two windows would be in no window", "write an advance of at most the length"
            )
        return advance


class Session(Config):
    """Windows of records that follow each other within a gap."""

    session: Length
    """The gap: records of a key that are at most this far apart are in one session."""
    grace: Duration
    """How long after the gap a session accepts late records."""
    max_length: Length | None = None
    """Longest time between the first and the last record of a session: the operator stops before a record that would
    make a session longer. Omitted: any length.
    """


class Unlimited(Config):
    """One window per key, which never ends."""

    unlimited: Literal[True]
    """Always true."""


_WINDOWS: dict[str, type[Config]] = {
    "tumbling": Tumbling,
    "hopping": Hopping,
    "session": Session,
    "unlimited": Unlimited,
}


def _read_window(value: object) -> object:
    if isinstance(value, Tumbling | Hopping | Session | Unlimited):
        return value
    kinds = [kind for kind in _WINDOWS if isinstance(value, Mapping) and kind in value]
    if not isinstance(value, Mapping) or len(kinds) != 1:
        raise InvalidValue("not a window", "write window: {tumbling: 1h, grace: 2h}, or hopping, session or unlimited")
    if "retention" in value:
        raise InvalidValue("retention is not an option of the window", "write retention beside window, not in it")
    if kinds == ["unlimited"] and "grace" in value:
        raise InvalidValue("a window that never ends has no grace", "remove grace")
    return _WINDOWS[kinds[0]].model_validate(value)


Window: TypeAlias = Annotated[Tumbling | Hopping | Session | Unlimited, BeforeValidator(_read_window)]


class JsonField(Config):
    """A field of a JSON object."""

    field: FieldName
    """Name of the top-level field."""


def _read_part(value: object) -> object:
    if value is None or value is True or isinstance(value, JsonField):
        return value
    if isinstance(value, Mapping):
        return JsonField.model_validate(value)
    raise InvalidValue(
        "neither a field nor true", "write {field: NAME}, or true if the values are numbers, not objects"
    )


Part: TypeAlias = Annotated[JsonField | Literal[True] | None, BeforeValidator(_read_part)]


class Aggregates(Config):
    """What is computed from a window's records: one aggregate gives a bare JSON value, several an object."""

    count: Literal[True] | None = None
    """Number of records; null values count."""
    sum: Part = None
    """Sum of a field, or with `true` of values that are numbers themselves: exact for whole numbers of 64 bits."""
    min: Part = None
    """Smallest number."""
    max: Part = None
    """Largest number."""
    avg: Part = None
    """Mean of the numbers."""
    first: Part = None
    """Element that arrived first: a field of it, or with `true` its value, which is JSON. Null without elements."""
    last: Part = None
    """Element that arrived last."""
    collect: Part = None
    """All elements, in the order in which they arrived."""
    function: FunctionName | None = None
    """`module:function` that computes the values, instead of all other aggregates."""

    @model_validator(mode="after")
    def _aggregates_fit_together(self) -> Aggregates:
        given = [name for name in type(self).model_fields if getattr(self, name) is not None]
        if not given:
            raise InvalidValue(
                "nothing to compute", "write aggregate: {count: true} or aggregate: {sum: {field: amount}}"
            )
        if self.function is not None and len(given) > 1:
            raise InvalidValue(
                "the function computes the whole value", "remove the other aggregates, or let the function compute them"
            )
        return self

    @property
    def needs_elements(self) -> bool:
        """Return True if values are computed from a window's elements, not from each record as it arrives."""
        return any(part is not None for part in (self.first, self.last, self.collect, self.function))

    @property
    def reads_fields(self) -> bool:
        """Return whether an aggregate is computed from a field."""
        return any(isinstance(getattr(self, name), JsonField) for name in type(self).model_fields)

    def fields(self, values: Values) -> list[pa.Field]:
        """Return the computed fields with their types; those of numbers of unknown type are doubles."""
        given = [(name, getattr(self, name)) for name in type(self).model_fields if getattr(self, name) is not None]
        return [pa.field(name, _type(name, part, values)) for name, part in given]


def _type(name: str, part: JsonField | Literal[True], values: Values) -> pa.DataType:
    read = values.type_of(part.field) if isinstance(part, JsonField) else None
    match name:
        case "count":
            return pa.int64()
        case "avg":
            return pa.float64()
        case "sum" | "min" | "max":
            return pa.int64() if read is not None and pa.types.is_integer(read) else pa.float64()
        case "first" | "last" if read is not None:
            return read
    return pa.large_string()


When = Literal["before", "after"]


class CountEvictor(Config):
    """An evictor that keeps a number of elements."""

    count: Count
    """Number of elements that are kept: the oldest by arrival are removed until so many are left."""
    when: When = "before"
    """Before the window's value is computed, or after."""


class TimeEvictor(Config):
    """An evictor that keeps recent elements."""

    time: Duration
    """Elements are removed if they are at least this much older than the newest one; with 0 all are removed."""
    when: When = "before"
    """Before the window's value is computed, or after."""


def _read_distance(value: object) -> object:
    return _read_function_name(value) if isinstance(value, str) else _read_part(value)


def _read_function_name(value: object) -> object:
    if not isinstance(value, str):
        raise InvalidValue("not a function", "write module:function")
    if (problem := function_problem(value)) is not None:
        raise problem
    return value


class Delta(Config):
    """How far an element may be from the last one."""

    threshold: Annotated[float, Field(allow_inf_nan=False)]
    """Elements at least this far from the one that arrived last are removed; with 0 or less that one is removed, too.
    """
    distance: Annotated[JsonField | Literal[True] | FunctionName, BeforeValidator(_read_distance)]
    """Difference of a field's numbers, with `true` of values that are numbers, or `module:function`."""


class DeltaEvictor(Config):
    """An evictor that keeps elements near the last one."""

    delta: Delta
    """Distance from the last element at which elements are removed."""
    when: When = "before"
    """Before the window's value is computed, or after."""


class BeforeAndAfter(Config):
    """Two functions, which remove elements before and after a window's value is computed."""

    before: FunctionName
    """`module:function`; it gets all elements."""
    after: FunctionName
    """`module:function`; it gets the elements that are left."""


def _read_functions(value: object) -> object:
    if isinstance(value, Mapping):
        return BeforeAndAfter.model_validate(value)
    return value if isinstance(value, BeforeAndAfter) else _read_function_name(value)


class FunctionEvictor(Config):
    """An evictor that removes the elements that a function chooses."""

    function: Annotated[FunctionName | BeforeAndAfter, BeforeValidator(_read_functions)]
    """`module:function`, or one for each moment: `{before: module:function, after: module:function}`."""
    when: When | None = None
    """Before the window's value is computed (default), or after."""

    @field_validator("when")
    @classmethod
    def _when_fits_function(cls, when: str | None, info: ValidationInfo) -> str | None:
        if when is not None and isinstance(info.data.get("function"), BeforeAndAfter):
            raise InvalidValue("`before` and `after` already say when each function runs", "remove when")
        return when

    def functions(self) -> tuple[str | None, str | None]:
        """Return the functions that run before and after the value is computed; None for neither."""
        if isinstance(self.function, BeforeAndAfter):
            return self.function.before, self.function.after
        return (None, self.function) if self.when == "after" else (self.function, None)


_EVICTORS: dict[str, type[Config]] = {
    "count": CountEvictor,
    "time": TimeEvictor,
    "delta": DeltaEvictor,
    "function": FunctionEvictor,
}


def _read_evictor(value: object) -> object:
    if value is None or isinstance(value, CountEvictor | TimeEvictor | DeltaEvictor | FunctionEvictor):
        return value
    kinds = [kind for kind in _EVICTORS if isinstance(value, Mapping) and kind in value]
    if not isinstance(value, Mapping) or len(kinds) != 1:
        raise InvalidValue("not an evictor", "write evictor: {count: 100}, or time, delta or function")
    return _EVICTORS[kinds[0]].model_validate(value)


Evictor: TypeAlias = Annotated[
    CountEvictor | TimeEvictor | DeltaEvictor | FunctionEvictor | None, BeforeValidator(_read_evictor)
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
    """What is computed: `{count: true}`, `{sum: {field: amount}}`, min, max, avg; first, last, collect, a function."""
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

    @field_validator("aggregate", "every", "evictor")
    @classmethod
    def _elements_fit_window(cls, value: object, info: ValidationInfo) -> object:
        needed = value.needs_elements if isinstance(value, Aggregates) else value is not None
        if needed and isinstance(info.data.get("window"), Session):
            raise InvalidValue("sessions do not keep their elements", "use tumbling, hopping or unlimited windows")
        return value

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
        if self.aggregate.function is not None:
            return Values.of_bytes() if emits is None else Values.of_fields(emits)
        if values.form == "joined" and self.aggregate.reads_fields:
            raise InvalidValue(
                "values of a join are {stream: ..., table: ...}, and aggregates read fields of objects",
                "put with_columns or select before the aggregation, whose results are objects of fields",
            )
        schema = pa.schema(self.aggregate.fields(values))
        return Values("single" if len(schema) == 1 else "object", schema)

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


def least_retention(window: Tumbling | Hopping | Session | Unlimited) -> int:
    """Return how long a window must be kept so that it can close, in ms."""
    match window:
        case Tumbling():
            return window.tumbling + window.grace
        case Hopping():
            return window.hopping + window.grace
        case Session():
            return window.session + window.grace
    return 0


def closes_after(window: Tumbling | Hopping | Session | Unlimited) -> int | None:
    """Return how long after its end (a session's: its last record) a window accepts records, in ms; None: forever."""
    match window:
        case Unlimited():
            return None
        case Session():
            return window.session + window.grace + 1
    return window.grace


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
        named: list[object] = [self.aggregate.function]
        if isinstance(self.evictor, FunctionEvictor):
            named += self.evictor.functions()
        elif isinstance(self.evictor, DeltaEvictor):
            named.append(self.evictor.delta.distance)
        return tuple(name for name in named if isinstance(name, str))
