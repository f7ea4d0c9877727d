"""Streams, and the methods from which operators grow.

Only windows can be emitted when they close: other results have no such method.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar, Generic, Literal, Self, overload

from tidegate.application.definitions.chains import Definitions, merged
from tidegate.application.definitions.definition import Definition
from tidegate.application.formats import (
    Fields,
    Format,
    KafkaWindows,
    emitted,
    function_choosing,
    function_making,
    known_fields,
)
from tidegate.application.limits import EagerBound, StrictBound, TimeLimit, WindowClose, as_options, bounds_as_options
from tidegate.application.options import Duration, Fault, Function, function_name, option_of, optional
from tidegate.application.places import caller
from tidegate.application.streams.output import register, topic_option, written_as
from tidegate.application.streams.rekeyed import Rekeyed
from tidegate.application.streams.table import Table
from tidegate.application.streams.value import FIELDS, Condition, Results, Startable, Value, sql_option
from tidegate.application.streams.windowed import Windowed
from tidegate.application.windows import EndingWindow, Window

if TYPE_CHECKING:
    from tidegate.contracts.config.rules import OperatorRules
    from tidegate.operators.options.user_functions import BatchFunction


_WINDOWS = 'write tg.tumbling("1h", grace="5m"), tg.hopping(...), tg.session(...) or tg.unlimited()'
Timer = Literal["first_update", "last_update", "window_end"]


@dataclass(frozen=True)
class Source(Value, Generic[Results]):
    """Rows from which steps grow: the records of a topic, or the results of a step."""

    others: ClassVar[Mapping[str, str]] = {
        "where": "write .filter(CONDITION)",
        **dict.fromkeys(("count", "aggregate", "reduce"), "write .window(tg.tumbling(LENGTH, grace=...)) first"),
        **dict.fromkeys(
            ("group_by", "groupBy", "group_by_key", "groupByKey"),
            "write .select_key(KEY).through(TOPIC, partitions=NUMBER), and what is to be computed of each key",
        ),
        **dict.fromkeys(
            ("through", "repartition", "key_by", "keyBy", "selectKey"),
            "write .select_key(KEY).through(TOPIC, partitions=NUMBER)",
        ),
    }

    def filter(self, condition: Condition | BatchFunction) -> Self:
        """Return the rows for which the condition is true, or which the function chooses. Time of the others counts."""
        chosen: Any = {"function": function_choosing(condition)} if callable(condition) else sql_option(condition)
        return self._stateless(".filter", {"filter": chosen})

    def map(self, function: BatchFunction) -> Self:
        """Return the rows with values that a function makes of each: it has `@tg.batch_function(emits=...)`."""
        return self._stateless(".map", {"map": function_making(function), "emits": emitted(function)})

    def flat_map(self, function: BatchFunction) -> Self:
        """Return the rows that a function makes: any number of each, which has its key, time and window."""
        return self._stateless(".flat_map", {"flat_map": function_making(function), "emits": emitted(function)})

    def require(self, condition: Condition, reason: str) -> Self:
        """Return the rows for which the condition is true. The others are rejected and move no time."""
        return self._stateless(".require", {"require": sql_option(condition), "reason": reason})

    def with_columns(self, **fields: Condition) -> Self:
        """Return the rows with further fields in their values, or with others in place of fields of the same names."""
        return self._stateless(
            ".with_columns", {"with_columns": {name: sql_option(each) for name, each in fields.items()}}
        )

    def select(self, **fields: Condition) -> Self:
        """Return the rows with values that have these fields alone."""
        return self._stateless(".select", {"select": {name: sql_option(each) for name, each in fields.items()}})

    def named(self, name: str) -> Self:
        """Return the rows of the same step, which has this name: views of its results have it, too.

        A step without state needs no name; one that several others read is otherwise called after its method and place.
        """
        chain = self.definition.as_pipeline()
        if chain.ends is not None or not chain.steps:
            fault = Fault(name, "there is no step to name", "call a method such as .filter(...) first")
            return replace(self, definition=self.definition.after(".named", caller(), {}, [fault]))
        return replace(self, definition=chain.after(".named", caller(), {"name": name}, (), len(chain.steps) - 1))

    def merge(self, other: Self) -> Self:
        """Return the rows of both, which have to grow from one stream and to be alike.

        Rows are in the order of the records of the input that caused them.
        """
        place, theirs = caller(), other.definition if isinstance(other, Source) else None
        stream = replace(self.definition, calls=self.definition.calls[:1])
        if theirs is None or other.definitions is not self.definitions or not theirs.grows_from(stream):
            given = theirs.name if theirs is not None else other
            fault = Fault(given, "it does not grow from the same stream", "merge branches of one stream")
            return replace(self, definition=self.definition.after(".merge", place, {}, [fault]))
        return replace(self, definition=merged(self.definition, theirs).after(".merge", place, {}))

    def select_key(self, key: Condition) -> Rekeyed[Results]:
        """Return the rows with another key: a field, or an expression. Rows whose new key is null are rejected.

        It is written by the serializer of Kafka's for its type. `through` or `to` then brings the rows of one key
        together in one partition of a topic.
        """
        rekeyed = self._stateless(".select_key", {"select_key": sql_option(key)})
        return Rekeyed(rekeyed.definition, self.definitions, self._output)

    def join(
        self,
        table: Table,
        *,
        how: Literal["inner", "left"],
        grace: Duration | None = None,
        wait_for_table: Duration | None = None,
        before_history: Literal["stop", "join"] | None = None,
        joiner: Function | None = None,
        emits: Fields | None = None,
        name: str | None = None,
    ) -> Results:
        """Return each record joined with the version of the table that was valid at its timestamp (KIP-923).

        `how`: records without such a version are dropped (`inner`) or emitted with a null table value (`left`).
        `grace`: how long, in stream time, a record waits for the table's version. `wait_for_table`: how long, on the
        clock, it then waits at most for a table that is behind; default: until that has caught up. `before_history`:
        what to do before the table's history: `stop` (default) or `join` what is still known. `joiner`: a function that
        computes the values; default: `{"stream": ..., "table": ...}`. `emits`: the fields of the joiner's values, if
        steps behind read them. `name`: of the step; default: `join_TABLE`.
        """
        options = {
            "kind": "stream_table_join",
            "table": option_of(
                table,
                Table,
                lambda each: self.definitions.joined(each.definition, each.definitions),
                self.definitions.a_table,
            ),
            "join": how,
            "grace": grace,
            "wait_for_table": wait_for_table,
            "before_history": before_history,
            "joiner": function_name(joiner),
            "emits": optional(emits, object, known_fields, FIELDS),
        }
        if emits is None and joiner is None and isinstance(table, Table):
            options |= {"emits": table.fields, "table_value": table.value}
        return self._grown(".join", options, (), name)

    def join_stream(
        self,
        right: str,
        *,
        how: Literal["inner", "left", "outer"],
        before: Duration,
        after: Duration,
        grace: Duration,
    ) -> Results:
        """Return the pairs of records of this stream and another topic's that are close in time (KIP-328, KIP-633).

        `right`: the topic of the right stream, with as many partitions; options of this stream apply to its records,
        too. `before`, `after`: how much earlier and later than a record of the left stream its partner may be. `grace`:
        how long, in stream time, the window of a record stays open after its end; behind that the record is late.
        `how`: which records are emitted without a partner when their window closes: none (`inner`), those of the left
        stream (`left`), all (`outer`). Values are `{"left": ..., "right": ...}`. No other step stands before or behind.
        """
        options = {"kind": "stream_stream_join", "right": right, "join": how}
        return self._grown(".join_stream", {**options, "before": before, "after": after, "grace": grace}, (), None)

    @overload
    def deduplicate(self, *bounds: StrictBound, within: Literal["forever"], name: str | None = None) -> Stream: ...

    @overload
    def deduplicate(
        self, *bounds: StrictBound, within: Duration, grace: Duration, name: str | None = None
    ) -> Stream: ...

    def deduplicate(
        self, *bounds: StrictBound, within: Duration, grace: Duration | None = None, name: str | None = None
    ) -> Stream:
        """Return the first record of each key at once, and drop its duplicates.

        `within`: records of a key that are less than this apart, in event time, are duplicates of the one that came
        first; `forever`: all later ones are. `grace`: how far behind stream time a record is accepted, with a time in
        `within`. `bounds` limit how many keys are remembered; default: nothing does. `name`: of the step; default:
        `deduplicate`.
        """
        given, faults = bounds_as_options(bounds)
        options = {"kind": "deduplicate", "within": within, "grace": grace, **given}
        return Stream(self.definition.grown(".deduplicate", caller(), options, faults, name), self.definitions)

    def apply(self, rules: OperatorRules, *, name: str | None = None) -> Results:
        """Return the results of an operator of any kind, by its rules.

        Rules also hold what is said of a stream, such as its timestamps: where both say it, the rules count.
        """
        from tidegate.contracts.config.rules import OperatorRules

        kind = option_of(rules, OperatorRules, lambda each: each.kind, "pass rules, such as tg.SuppressionRules(...)")
        options = rules.model_dump(mode="json", exclude_unset=True) if isinstance(rules, OperatorRules) else {}
        return self._grown(".apply", {**options, "kind": kind}, (), name)

    def _suppressed(self, limits: Sequence[Any], others: dict[str, Any], name: str | None) -> Results:
        options, faults = as_options(limits)
        return self._grown(".suppress", {"kind": "suppression", **options, **others}, faults, name)

    def _grown(self, verb: str, options: dict[str, Any], faults: Iterable[Fault], name: str | None) -> Results:
        return self._output(self.definition.grown(verb, caller(), options, faults, name), self.definitions)

    def _output(self, definition: Definition, definitions: Definitions) -> Results:
        raise NotImplementedError


@dataclass(frozen=True)
class Stream(Source["Stream"], Startable):
    """The records of a topic, by key, or the results of a step: steps grow from them, or they are written or kept."""

    def suppress(
        self,
        *limits: TimeLimit | EagerBound | StrictBound,
        timer: Literal["first_update", "last_update"] | None = None,
        bytes_of: Literal["value", "record"] | None = None,
        max_lateness: Duration | None = None,
        name: str | None = None,
    ) -> Stream:
        """Return the newest record of each key, held until a limit is reached (KIP-328).

        `timer`: from when a time limit counts: a key's first held timestamp (default) or its latest. `bytes_of`: which
        bytes `max_bytes` counts: values (default) or whole records. `max_lateness`: records further behind stream time
        are late; default: none is. `name`: of the step; default: `suppress`.
        """
        return self._suppressed(limits, {"timer": timer, "bytes_of": bytes_of, "max_lateness": max_lateness}, name)

    @overload  # a window of unknown type has results of the other one, which has fewer methods
    def window(self, window: EndingWindow) -> Windowed[WindowResults]: ...  # type: ignore[overload-overlap]

    @overload
    def window(self, window: Window) -> Windowed[Stream]: ...

    def window(self, window: Window) -> Windowed[Any]:
        """Return the stream with its records assigned to windows of event time."""
        options = {
            "kind": "windowed_aggregation",
            "window": option_of(window, Window, lambda each: dict(each.options), _WINDOWS),
        }
        endless = isinstance(window, Window) and not isinstance(window, EndingWindow)
        results: type[Any] = Stream if endless else WindowResults
        definition = self.definition.grown(".window", caller(), options, (), None)
        return Windowed(definition, self.definitions, results)

    def to(self, topic: str, *, value: Format | None = None) -> None:
        """Register the operator; write its results to the topic, exactly once, and keep them in the lake too.

        `value`: the format in which values are written: one of Kafka's own serializers, for their only field, Avro
        or Protobuf.
        """
        register(written_as(self, value), "to", {"output": topic_option(topic)})

    def keep(self) -> None:
        """Register the operator; keep its results in the lake alone, where views show them."""
        register(self, "keep", {})

    def _output(self, definition: Definition, definitions: Definitions) -> Stream:
        return Stream(definition, definitions)


@dataclass(frozen=True)
class WindowedStream(Source["WindowedStream"], Startable):
    """The records of a topic, or the results of a step, whose keys have windows."""

    others: ClassVar[Mapping[str, str]] = {
        "window": "its keys have windows already; write the results to a topic, and begin another operator with it",
        **Source.others,
    }

    @overload
    def suppress(
        self,
        close: WindowClose,
        /,
        *bounds: StrictBound,
        bytes_of: Literal["value", "record"] | None = None,
        name: str | None = None,
    ) -> WindowedStream: ...

    @overload
    def suppress(
        self,
        *limits: TimeLimit | EagerBound | StrictBound,
        timer: Timer | None = None,
        bytes_of: Literal["value", "record"] | None = None,
        max_lateness: Duration | None = None,
        name: str | None = None,
    ) -> WindowedStream: ...

    def suppress(
        self,
        *limits: Any,
        timer: Timer | None = None,
        bytes_of: Literal["value", "record"] | None = None,
        max_lateness: Duration | None = None,
        name: str | None = None,
    ) -> WindowedStream:
        """Return the newest record of each window of a key, held until a limit is reached or the window closes.

        With `tg.window_close()` each window has one result, and bounds never emit early. The options are those of
        `Stream.suppress`; here a time limit counts from the window's end, unless `timer` says otherwise.
        """
        return self._suppressed(limits, {"timer": timer, "bytes_of": bytes_of, "max_lateness": max_lateness}, name)

    def to(self, topic: str, *, key: KafkaWindows | None = None, value: Format | None = None) -> None:
        """Register the operator; write its results to the topic, exactly once, and keep them in the lake too.

        Windows are in headers of the records; with `key=tg.kafka_windows()` they are in the bytes of the keys.
        `value`: the format in which values are written: one of Kafka's own serializers, for their only field, Avro
        or Protobuf.
        """
        windows = optional(key, KafkaWindows, lambda _: "kafka", "write key=tg.kafka_windows(), or leave it out")
        register(written_as(self, value), "to", {"output": topic_option(topic), "output_windows": windows})

    def keep(self) -> None:
        """Register the operator; keep its results in the lake alone, where views show them."""
        register(self, "keep", {})

    def _output(self, definition: Definition, definitions: Definitions) -> WindowedStream:
        return WindowedStream(definition, definitions)


@dataclass(frozen=True)
class WindowResults(WindowedStream):
    """The results of windows that end: every update, unless they are suppressed.

    `suppress(tg.window_close())` without a name is no step of its own: the windows emit one final result each, and
    bounds limit how many are open. With a name the suppression has a buffer of its own, which views show.
    """

    def _suppressed(self, limits: Sequence[Any], others: dict[str, Any], name: str | None) -> WindowedStream:
        alone = name is None and not any(others.values()) and self.definition.newest_option("window") is not None
        if alone and not any(isinstance(each, TimeLimit | EagerBound) for each in limits):
            return self._final(*limits)
        return super()._suppressed(limits, others, name)

    def _final(self, close: Any = None, *bounds: Any) -> WindowedStream:
        options, faults = bounds_as_options(bounds)
        if not isinstance(close, WindowClose):
            faults.append(Fault(close, "not the close of a window", "write .suppress(tg.window_close())"))
        elif close.grace is not None:
            faults.append(Fault(str(close.grace), "the windows have a grace already", "write tg.window_close()"))
        if self.definition.newest_option("emit") == "on_time":
            faults.append(Fault("on_time", "a final result leaves once, when its window closes", "remove emit"))
        final = {"emit": "final", **options}
        return WindowedStream(self.definition.amended(".suppress", caller(), final, faults), self.definitions)
