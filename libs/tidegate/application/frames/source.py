"""A streaming DataFrame as the source of one operator: its rules are checked and started together with it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from tidegate.application.definitions.chains import Definitions, unread
from tidegate.application.definitions.definition import Definition
from tidegate.application.options import Fault, Unusable, as_yaml, option_of
from tidegate.application.places import Place, caller
from tidegate.application.program import let_workers_import
from tidegate.contracts.config import read
from tidegate.contracts.errors import ConfigurationError, Problem, UserError
from tidegate.contracts.naming import NAME_FORM

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from tidegate.application.frames.query import Query
    from tidegate.runtime.stream.columns import StreamColumns
    from tidegate.runtime.stream.config import StreamConfig

_running: dict[str, Query] = {}


class FrameSource(Definitions):
    """A streaming DataFrame, from which one operator grows. `knows_values`: whether the type of its values is known."""

    def __init__(self, df: DataFrame, columns: StreamColumns, *, knows_values: bool) -> None:
        super().__init__()
        self._df, self._columns, self._knows_values = df, columns, knows_values

    def add(self, operator: Definition) -> NoReturn:
        """Raise UserError: results of a DataFrame's operator stay in the lake, and a query has one output."""
        call = operator.calls[-1]
        if call.verb == ".keep":
            remedy = "start each chain under a name of its own: .start(NAME, lake=...) keeps its results in the lake"
            raise UserError("a query on a DataFrame has one output", value=call, remedy=remedy)
        remedy = "write .start(NAME, lake=...), and write its .emissions() to any sink of Spark"
        raise UserError("an operator on a DataFrame writes to no topic", value=call, remedy=remedy)

    def joined(self, table: Definition) -> Unusable:
        """Return the problem that one DataFrame's stream cannot be joined with a table."""
        cause = "a query on a DataFrame has one operator and one input, and a join has two"
        remedy = (
            "join between topics, app.stream(TOPIC, name=...).join(app.table(TOPIC, history=...), how=...), "
            "or without waiting for late versions: tidegate.spark.asof_join"
        )
        return Unusable(Fault(str(table.calls[0]), cause, remedy))

    def start(self, definition: Definition, name: str, options: Mapping[str, Any]) -> Query:
        """Start the operator under the name. A query of that name and lake that this process runs is stopped first."""
        from tidegate.application.frames.query import Query
        from tidegate.runtime.spark.session import share_python_path
        from tidegate.runtime.stream.query import start_query

        place = caller()
        if faults := unread(definition, "start"):
            definition = definition.after(".start", place, {}, faults)
        given = {each: _taken(each, value) for each, value in {"name": name, **options}.items() if value is not None}
        config = self._configuration(definition, place, given)
        if (before := _running.pop(str(config.log), None)) is not None and before.is_running:
            before.stop()
        let_workers_import(place.folder)
        share_python_path()
        started = start_query(self._df, config, self._columns, given.get("trigger"))
        query = _running[str(config.log)] = Query(self._df.sparkSession, started, config)
        return query

    def _configuration(self, definition: Definition, place: Place, given: Mapping[str, Any]) -> StreamConfig:
        """Return the checked configuration. Raise ConfigurationError with all problems of the chain and its start."""
        from tidegate.operators.registry import kind_of
        from tidegate.runtime.stream.config import StreamConfig

        written, problems, rules = definition.as_yaml(), list(definition.problems), None
        try:
            rules = read(kind_of(written["kind"]).rules, written)
        except ConfigurationError as error:
            problems += self._placed(definition, error.problems)
        faults = {name: value.fault for name, value in given.items() if isinstance(value, Unusable)}
        problems += [Problem(where=f"{place} .start(), {name}", **vars(fault)) for name, fault in faults.items()]
        sound = {name: value for name, value in given.items() if name not in {"trigger", *faults}}
        checkpoint = f"{sound.get('lake')}/_checkpoints/{sound.get('name')}"
        try:
            config = read(StreamConfig, {"checkpoint": checkpoint, **sound, "rules": rules})
        except ConfigurationError as error:
            known = {*faults, *(() if rules is not None else ("rules",))}
            problems += [
                replace(problem, where=f"{place} .start(), {problem.where}")
                for problem in error.problems
                if problem.where not in known
            ]
        if problems:
            raise ConfigurationError(problems)
        return config

    def _placed(self, definition: Definition, problems: tuple[Problem, ...]) -> Iterator[Problem]:
        """Yield the problems with the places of their calls; none that may follow from values of unknown type."""
        if self._knows_values:
            yield from filter(None, map(definition.placed, problems))


_FOLDER = ((str, Path), "name a folder as text, or pass a Path")
_TYPES: dict[str, tuple[Any, str]] = {
    "name": (str, f"write {NAME_FORM}"),
    **dict.fromkeys(("lake", "state", "checkpoint"), _FOLDER),
    "trigger": (Mapping, 'write {"availableNow": True}, or leave it out'),
}


def _taken(option: str, value: Any) -> Any:
    """Return the option of a start as the configuration has it; Unusable if its type is wrong."""
    types, remedy = _TYPES.get(option, (object, ""))
    return option_of(value, types, as_yaml, remedy)
