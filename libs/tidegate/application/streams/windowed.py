"""Streams within windows, of which results are computed."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Generic, Literal, overload

from tidegate.application.aggregates import Aggregate
from tidegate.application.definitions.chains import Definitions
from tidegate.application.definitions.definition import Definition
from tidegate.application.evictors import Evictor
from tidegate.application.formats import Fields, known_fields
from tidegate.application.options import Duration, Fault, Function, Unusable, function_name, option_of, optional
from tidegate.application.places import caller
from tidegate.application.streams.value import FIELDS, Results, Value
from tidegate.contracts.naming import function_problem


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
        name: str | None = None,
        emit: Literal["updates", "on_time"] | None = None,
        every: int | None = None,
        evictor: Evictor | None = None,
        retention: Duration | None = None,
    ) -> Results:
        """Return the number of records of each key and window; the options are those of `aggregate`."""
        return self._results(".count", {"count": True}, (), name, emit, every, evictor, retention)

    @overload
    def aggregate(
        self,
        function: Function,
        /,
        *,
        name: str | None = None,
        emits: Fields | None = None,
        emit: Literal["updates", "on_time"] | None = None,
        every: int | None = None,
        evictor: Evictor | None = None,
        retention: Duration | None = None,
    ) -> Results: ...

    @overload
    def aggregate(
        self,
        *aggregates: Aggregate,
        name: str | None = None,
        emit: Literal["updates", "on_time"] | None = None,
        every: int | None = None,
        evictor: Evictor | None = None,
        retention: Duration | None = None,
        **fields: Aggregate,
    ) -> Results: ...

    def aggregate(
        self,
        *aggregates: Any,
        name: str | None = None,
        emits: Any = None,
        emit: Literal["updates", "on_time"] | None = None,
        every: int | None = None,
        evictor: Evictor | None = None,
        retention: Duration | None = None,
        **fields: Any,
    ) -> Results:
        """Return what is computed of the records of each key and window: aggregates, or what a function computes.

        `fields`: aggregates by the names of the fields that they become: `n=tg.count(), gust=tg.max("weather.gust")`.
        `name`: of the step; default: `aggregate`. `emits`: the fields of what a function computes, if steps behind read
        them. `emit`: `updates`, every change (default); `on_time`, when the window ends, then every change. `every`:
        instead of `emit`, a result after every so many records of the window. `evictor`: which elements a window loses
        when a result is emitted. `retention`: how long windows are kept, from their start (sessions: from their end);
        default: until they close.
        """
        computed: Any = {
            (each.name if isinstance(each, Aggregate) else "function"): (
                each.option if isinstance(each, Aggregate) else _function(each)
            )
            for each in aggregates
        }
        given = len(aggregates) + len(fields)
        computed |= {
            field: each.named_option if isinstance(each, Aggregate) else _function(each)
            for field, each in fields.items()
        }
        twice = [] if len(computed) == given else [_given_twice((*aggregates, *fields.values()))]
        if not given:
            computed = Unusable(Fault(".aggregate()", "nothing to compute", _AGGREGATES))
        return self._results(".aggregate", computed, twice, name, emit, every, evictor, retention, emits)

    def reduce(
        self,
        function: Function,
        /,
        *,
        emits: Fields,
        name: str | None = None,
        emit: Literal["updates", "on_time"] | None = None,
        every: int | None = None,
        retention: Duration | None = None,
    ) -> Results:
        """Return what a function merges the values of each key and window into. A window keeps that, not the records.

        `function`: gets two record batches with the fields of the values, and returns one in which row i is what row i
        of both is merged into. It must be associative and commutative; `tidegate.testing.check_merge_function` checks
        that. `emits`: these fields. The other options are those of `aggregate`.
        """
        reduction = {"function": function_name(function), "emits": known_fields(emits)}
        return self._results(".reduce", {"reduce": reduction}, (), name, emit, every, None, retention)

    def _results(
        self,
        verb: str,
        aggregate: dict[str, Any] | Unusable,
        faults: Iterable[Fault],
        name: str | None,
        emit: str | None,
        every: int | None,
        evictor: Evictor | None,
        retention: Duration | None,
        emits: Fields | None = None,
    ) -> Results:
        options = {
            "aggregate": aggregate,
            "every": every,
            "emit": "updates" if emit is None and every is None else emit,
            "evictor": optional(
                evictor, Evictor, lambda each: dict(each.options), "write an evictor, such as tg.newest(100)"
            ),
            "retention": retention,
            "emits": optional(emits, object, known_fields, FIELDS),
        }
        return self.results(self.definition.completed(verb, caller(), options, faults, name), self.definitions)


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
