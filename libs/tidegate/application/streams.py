"""Streams, windows and tables, and the methods that turn them into operators.

Each method returns a new frozen value; only `to` and `keep` register an operator. Unsound combinations have no method:
only windows can be emitted when they close, and a table has no `to`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, Generic, Literal, NoReturn, TypeVar, overload

from tidegate.application.aggregates import Aggregate
from tidegate.application.definitions import Definition, Definitions
from tidegate.application.evictors import Evictor
from tidegate.application.formats import KafkaWindows
from tidegate.application.limits import EagerBound, StrictBound, TimeLimit, WindowClose, as_options, bounds_as_options
from tidegate.application.options import Duration, Fault, Function, Unusable, function_name, option_of, optional
from tidegate.application.places import caller
from tidegate.application.windows import EndingWindow, Window
from tidegate.contracts.naming import function_problem

if TYPE_CHECKING:
    from tidegate.contracts.config import OperatorRules

_WINDOWS = 'write tg.tumbling("1h", grace="5m"), tg.hopping(...), tg.session(...) or tg.unlimited()'
Timer = Literal["first_update", "last_update", "window_end"]


@dataclass(frozen=True)
class Value:
    """A step of a program: what is defined so far. Two values are equal if they define the same."""

    definition: Definition
    definitions: Definitions = field(repr=False, compare=False)

    others: ClassVar[Mapping[str, str]] = {}
    """What to write instead of a method that this type lacks, by the method's name."""

    if not TYPE_CHECKING:  # a type checker reports the missing method itself

        def __getattr__(self, name: str) -> NoReturn:
            """Raise AttributeError, with what to write instead if that is known."""
            remedy = self.others.get(name)
            text = f"{type(self).__name__} has no attribute {name!r}" + (f"; {remedy}" if remedy else "")
            raise AttributeError(text, name=name, obj=self)


_STATELESS = dict.fromkeys(
    ("filter", "map", "flat_map", "select", "where", "require", "with_columns"),
    "Tidegate does not filter or change single records; do that where they are produced, or where results are read",
)
_ONE_STEP = (
    "an operator is one step. Write its results with .to(TOPIC), and start another operator with "
    "app.stream(TOPIC, name=...)"
)


@dataclass(frozen=True)
class Table(Value):
    """A table, which streams can be joined with."""

    others: ClassVar[Mapping[str, str]] = {
        "join": "join a stream with it: app.stream(TOPIC, name=...).join(table, how=...)",
        **dict.fromkeys(("to", "keep"), "a table has no results; join a stream with it, or query its views"),
    }


def _topic(topic: str) -> Any:
    return option_of(
        topic, str, lambda each: each, "name a topic as text, or call .keep() to keep results in the lake alone"
    )


@dataclass(frozen=True)
class Output(Value):
    """An operator's results. Nothing happens until they are written to a topic, or kept."""

    others: ClassVar[Mapping[str, str]] = dict.fromkeys(
        ("suppress", "window", "join", "deduplicate", "apply", "count", "aggregate", *_STATELESS), _ONE_STEP
    )

    def to(self, topic: str) -> None:
        """Register the operator; write its results to the topic, exactly once, and keep them in the lake too."""
        self._register("to", {"output": _topic(topic)})

    def keep(self) -> None:
        """Register the operator; keep its results in the lake alone, where views show them."""
        self._register("keep", {})

    def _register(self, verb: str, options: dict[str, Any]) -> None:
        self.definitions.add(self.definition.after(f".{verb}", caller(), options))


@dataclass(frozen=True)
class WindowedOutput(Output):
    """Results whose keys have windows."""

    def to(self, topic: str, *, key: KafkaWindows | None = None) -> None:
        """Register the operator; write its results to the topic, exactly once, and keep them in the lake too.

        Windows are in headers of the records; with `key=tg.kafka_windows()` they are in the bytes of the keys.
        """
        windows = optional(key, KafkaWindows, lambda _: "kafka", "write key=tg.kafka_windows(), or leave it out")
        self._register("to", {"output": _topic(topic), "output_windows": windows})


@dataclass(frozen=True)
class WindowResults(WindowedOutput):
    """The results of windows that end: every update, unless they are suppressed."""

    def suppress(self, close: WindowClose, *bounds: StrictBound) -> WindowedOutput:
        """Return one final result per window, emitted when it closes; `bounds` limit how many windows are open."""
        options, faults = bounds_as_options(bounds)
        if not isinstance(close, WindowClose):
            faults.append(Fault(close, "not the close of a window", "write .suppress(tg.window_close())"))
        elif close.grace is not None:
            faults.append(Fault(str(close.grace), "the windows have a grace already", "write tg.window_close()"))
        if self.definition.options.get("emit") == "on_time":
            faults.append(Fault("on_time", "a final result leaves once, when its window closes", "remove emit"))
        final = {"emit": "final", **options}
        return WindowedOutput(self.definition.after(".suppress", caller(), final, faults), self.definitions)


Results = TypeVar("Results", bound=Output)


@dataclass(frozen=True)
class Windowed(Value, Generic[Results]):
    """A stream whose records are assigned to windows."""

    results: Callable[[Definition, Definitions], Results] = field(repr=False)

    others: ClassVar[Mapping[str, str]] = {
        **dict.fromkeys(
            ("to", "keep", "suppress"), "call a method that computes results of each window first, such as .count()"
        ),
        **{name: f"write .aggregate(tg.{name}(FIELD))" for name in ("sum", "min", "max", "avg", "first", "last")},
        "collect": "write .aggregate(tg.collect(FIELD))",
    }

    def count(
        self,
        *,
        emit: Literal["updates", "on_time"] | None = None,
        every: int | None = None,
        evictor: Evictor | None = None,
        retention: Duration | None = None,
    ) -> Results:
        """Return the number of records of each key and window; the options are those of `aggregate`."""
        return self._results(".count", {"count": True}, (), emit, every, evictor, retention)

    @overload
    def aggregate(
        self,
        function: Function,
        /,
        *,
        emit: Literal["updates", "on_time"] | None = None,
        every: int | None = None,
        evictor: Evictor | None = None,
        retention: Duration | None = None,
    ) -> Results: ...

    @overload
    def aggregate(
        self,
        *aggregates: Aggregate,
        emit: Literal["updates", "on_time"] | None = None,
        every: int | None = None,
        evictor: Evictor | None = None,
        retention: Duration | None = None,
    ) -> Results: ...

    def aggregate(
        self,
        *aggregates: Any,
        emit: Literal["updates", "on_time"] | None = None,
        every: int | None = None,
        evictor: Evictor | None = None,
        retention: Duration | None = None,
    ) -> Results:
        """Return what is computed of the records of each key and window: aggregates, or what a function computes.

        `emit`: `updates`, every change (default); `on_time`, when the window ends, then every change. `every`: instead
        of `emit`, a result after every so many records of the window. `evictor`: which elements a window loses when a
        result is emitted. `retention`: how long windows are kept, from their start (sessions: from their end); default:
        until they close.
        """
        computed: Any = {
            (each.name if isinstance(each, Aggregate) else "function"): (
                each.option if isinstance(each, Aggregate) else _function(each)
            )
            for each in aggregates
        }
        twice = [] if len(computed) == len(aggregates) else [_given_twice(aggregates)]
        if not aggregates:
            computed = Unusable(Fault(".aggregate()", "nothing to compute", _AGGREGATES))
        return self._results(".aggregate", computed, twice, emit, every, evictor, retention)

    def _results(
        self,
        verb: str,
        aggregate: dict[str, Any] | Unusable,
        faults: Iterable[Fault],
        emit: str | None,
        every: int | None,
        evictor: Evictor | None,
        retention: Duration | None,
    ) -> Results:
        options = {
            "aggregate": aggregate,
            "every": every,
            "emit": "updates" if emit is None and every is None else emit,
            "evictor": optional(
                evictor, Evictor, lambda each: dict(each.options), "write an evictor, such as tg.newest(100)"
            ),
            "retention": retention,
        }
        return self.results(self.definition.after(verb, caller(), options, faults), self.definitions)


_AGGREGATES = "write tg.count(), tg.sum(FIELD) and so on, or pass a function, or its name as text: module:function"


def _function(aggregate: Any) -> Any:
    """Return the option of an aggregate that is a function, by itself or by its name."""
    if isinstance(aggregate, str) and function_problem(aggregate) is not None:
        return Unusable(Fault(aggregate, "not an aggregate", _AGGREGATES))
    if callable(aggregate) or isinstance(aggregate, str):
        return function_name(aggregate)
    return option_of(aggregate, Aggregate, str, _AGGREGATES)


def _given_twice(aggregates: Iterable[Any]) -> Fault:
    names = ", ".join(each.name if isinstance(each, Aggregate) else str(each) for each in aggregates)
    return Fault(names, "an aggregate is given twice", "give each once")


@dataclass(frozen=True)
class Source(Value, Generic[Results]):
    """The records of a topic, from which one operator grows."""

    others: ClassVar[Mapping[str, str]] = {
        **_STATELESS,
        **dict.fromkeys(
            ("to", "keep"), "call a method that defines an operator first, such as .suppress(tg.time_limit(...))"
        ),
        **dict.fromkeys(("count", "aggregate"), "write .window(tg.tumbling(LENGTH, grace=...)) first"),
        **dict.fromkeys(
            ("group_by", "groupBy", "group_by_key", "groupByKey"),
            "records are grouped by the keys of their topic; produce them with the keys to group by",
        ),
    }

    def join(
        self,
        table: Table,
        *,
        how: Literal["inner", "left"],
        grace: Duration | None = None,
        wait_for_table: Duration | None = None,
        before_history: Literal["stop", "join"] | None = None,
        joiner: Function | None = None,
    ) -> Results:
        """Return each record joined with the version of the table that was valid at its timestamp (KIP-923).

        `how`: records without such a version are dropped (`inner`) or emitted with a null table value (`left`).
        `grace`: how long, in stream time, a record waits for the table's version. `wait_for_table`: how long, on the
        clock, it then waits at most for a table that is behind; default: until that has caught up. `before_history`:
        what to do before the table's history: `stop` (default) or `join` what is still known. `joiner`: a function that
        computes the values; default: `{"stream": ..., "table": ...}`.
        """
        options = {
            "kind": "stream_table_join",
            "table": option_of(
                table, Table, lambda each: each.definition.name, "pass a table: app.table(TOPIC, history=...)"
            ),
            "join": how,
            "grace": grace,
            "wait_for_table": wait_for_table,
            "before_history": before_history,
            "joiner": function_name(joiner),
        }
        return self._grown(".join", options)

    @overload
    def deduplicate(self, *bounds: StrictBound, within: Literal["forever"]) -> Output: ...

    @overload
    def deduplicate(self, *bounds: StrictBound, within: Duration, grace: Duration) -> Output: ...

    def deduplicate(self, *bounds: StrictBound, within: Duration, grace: Duration | None = None) -> Output:
        """Return the first record of each key at once, and drop its duplicates.

        `within`: records of a key that are less than this apart, in event time, are duplicates of the one that came
        first; `forever`: all later ones are. `grace`: how far behind stream time a record is accepted, with a time in
        `within`. `bounds` limit how many keys are remembered; default: nothing does.
        """
        given, faults = bounds_as_options(bounds)
        options = {"kind": "deduplicate", "within": within, "grace": grace, **given}
        return Output(self.definition.after(".deduplicate", caller(), options, faults), self.definitions)

    def apply(self, rules: OperatorRules) -> Results:
        """Return the results of an operator of any kind, by its rules.

        Rules also hold what is said of a stream, such as its timestamps: where both say it, the rules count.
        """
        from tidegate.contracts.config import OperatorRules

        kind = option_of(rules, OperatorRules, lambda each: each.kind, "pass rules, such as tg.SuppressionRules(...)")
        options = rules.model_dump(mode="json", exclude_unset=True) if isinstance(rules, OperatorRules) else {}
        return self._grown(".apply", {**options, "kind": kind})

    def _suppressed(self, limits: Iterable[Any], others: dict[str, Any]) -> Results:
        options, faults = as_options(limits)
        return self._grown(".suppress", {"kind": "suppression", **options, **others}, faults)

    def _grown(self, verb: str, options: dict[str, Any], faults: Iterable[Fault] = ()) -> Results:
        return self._output(self.definition.after(verb, caller(), options, faults), self.definitions)

    def _output(self, definition: Definition, definitions: Definitions) -> Results:
        raise NotImplementedError


@dataclass(frozen=True)
class Stream(Source[Output]):
    """The records of a topic, by key."""

    def suppress(
        self,
        *limits: TimeLimit | EagerBound | StrictBound,
        timer: Literal["first_update", "last_update"] | None = None,
        bytes_of: Literal["value", "record"] | None = None,
        max_lateness: Duration | None = None,
    ) -> Output:
        """Return the newest record of each key, held until a limit is reached (KIP-328).

        `timer`: from when a time limit counts: a key's first held timestamp (default) or its latest. `bytes_of`: which
        bytes `max_bytes` counts: values (default) or whole records. `max_lateness`: records further behind stream time
        are late; default: none is.
        """
        return self._suppressed(limits, {"timer": timer, "bytes_of": bytes_of, "max_lateness": max_lateness})

    @overload
    def window(self, window: EndingWindow) -> Windowed[WindowResults]: ...

    @overload
    def window(self, window: Window) -> Windowed[Output]: ...

    def window(self, window: Window) -> Windowed[Any]:
        """Return the stream with its records assigned to windows of event time."""
        options = {
            "kind": "windowed_aggregation",
            "window": option_of(window, Window, lambda each: dict(each.options), _WINDOWS),
        }
        endless = isinstance(window, Window) and not isinstance(window, EndingWindow)
        results: type[Output] = Output if endless else WindowResults
        return Windowed(self.definition.after(".window", caller(), options), self.definitions, results)

    def _output(self, definition: Definition, definitions: Definitions) -> Output:
        return Output(definition, definitions)


@dataclass(frozen=True)
class WindowedStream(Source[WindowedOutput]):
    """The records of a topic whose keys have windows."""

    @overload
    def suppress(
        self, close: WindowClose, /, *bounds: StrictBound, bytes_of: Literal["value", "record"] | None = None
    ) -> WindowedOutput: ...

    @overload
    def suppress(
        self,
        *limits: TimeLimit | EagerBound | StrictBound,
        timer: Timer | None = None,
        bytes_of: Literal["value", "record"] | None = None,
        max_lateness: Duration | None = None,
    ) -> WindowedOutput: ...

    def suppress(
        self,
        *limits: Any,
        timer: Timer | None = None,
        bytes_of: Literal["value", "record"] | None = None,
        max_lateness: Duration | None = None,
    ) -> WindowedOutput:
        """Return the newest record of each window of a key, held until a limit is reached or the window closes.

        With `tg.window_close()` each window has one result, and bounds never emit early. The options are those of
        `Stream.suppress`; here a time limit counts from the window's end, unless `timer` says otherwise.
        """
        return self._suppressed(limits, {"timer": timer, "bytes_of": bytes_of, "max_lateness": max_lateness})

    def _output(self, definition: Definition, definitions: Definitions) -> WindowedOutput:
        return WindowedOutput(definition, definitions)
