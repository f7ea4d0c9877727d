"""A streaming DataFrame as the source of one operator: its rules are checked and started together with it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn

from tidegate.application.definitions.chains import Definitions, unread
from tidegate.application.definitions.definition import Definition
from tidegate.application.options import Fault, Unusable, as_yaml, option_of
from tidegate.application.places import Place, caller
from tidegate.application.program import let_workers_import
from tidegate.contracts.config.base import read
from tidegate.contracts.errors import ConfigurationError, Problem, UserError
from tidegate.contracts.naming import NAME_FORM
from tidegate.contracts.values import Values, schema_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.types import DataType

    from tidegate.application.frames.query import Query
    from tidegate.application.frames.result_types import Results
    from tidegate.runtime.stream.columns import Columns, StreamColumns
    from tidegate.runtime.stream.config import StreamConfig

_running: dict[str, Query] = {}


class FrameSource(Definitions):
    """A streaming DataFrame, from which one operator grows, or which another one is joined with.

    `key_type`, `value_type`: those of its keys and values, if known. `name`: that of a table among the steps of a join.
    """

    a_table = "pass a table: tidegate.spark.table(df, key=..., timestamp=..., order_by=..., history=...)"

    def __init__(
        self,
        df: DataFrame,
        columns: StreamColumns,
        *,
        key_type: DataType | None,
        value_type: DataType | None,
        name: str = "",
    ) -> None:
        super().__init__()
        self.name = name
        self._df, self._columns, self._key_type, self._value_type = df, columns, key_type, value_type
        self._tables: dict[str, _Table] = {}

    def add(self, operator: Definition) -> NoReturn:
        """Raise UserError: results of a DataFrame's operator stay in the lake, and a query has one output."""
        call = operator.calls[-1]
        if call.verb == ".keep":
            remedy = "start each chain under a name of its own: .start(NAME, lake=...) keeps its results in the lake"
            raise UserError("a query on a DataFrame has one output", value=call, remedy=remedy)
        if call.verb == ".through":
            remedy = "begin the stream with that key: tidegate.spark.stream(df, key=...)"
            raise UserError("a DataFrame's stream goes through no topic", value=call, remedy=remedy)
        remedy = "write .start(NAME, lake=...), and write its .emissions() to any sink of Spark"
        raise UserError("an operator on a DataFrame writes to no topic", value=call, remedy=remedy)

    def joined(self, table: Definition, source: Definitions) -> Any:
        """Return the name of the table, whose rows become those of the query, too; Unusable if it has no DataFrame."""
        shown = str(table.calls[0])
        if not isinstance(source, FrameSource):
            return Unusable(Fault(shown, "the table is that of a topic, and the stream is a DataFrame", self.a_table))
        if (fault := self.other_keys(source)) is not None:
            return Unusable(fault)
        known = self._tables.setdefault(source.name, _Table(table, source))
        if known.source is not source:
            remedy = "give one of them another name: tidegate.spark.table(..., name=...)"
            return Unusable(Fault(shown, f"another table is joined under the name {source.name}", remedy))
        return source.name

    def other_keys(self, joined: FrameSource) -> Fault | None:
        """Return what is wrong if keys of the other DataFrame are never equal to those of this one: other bytes."""
        from pyspark.sql.types import BinaryType, StringType

        types = (self._key_type, joined._key_type)
        one, other = (None if each is None else each.simpleString() for each in types)
        if None in types or one == other or all(isinstance(each, StringType | BinaryType) for each in types):
            return None
        return Fault(
            other, f"keys of one DataFrame are {one}, and of the other {other}", "cast one to the other's type"
        )

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
        rows, columns = self._rows(definition)
        if (before := _running.pop(str(config.log), None)) is not None and before.is_running:
            before.stop()
        let_workers_import(place.folder)
        share_python_path()
        started = start_query(rows, config, columns, given.get("trigger"))
        query = _running[str(config.log)] = Query(
            self._df.sparkSession, started, config, self._results(definition, config)
        )
        return query

    def _configuration(self, definition: Definition, place: Place, given: Mapping[str, Any]) -> StreamConfig:
        """Return the checked configuration. Raise ConfigurationError with all problems of the chain and its start."""
        from tidegate.operators.registry import kind_of
        from tidegate.runtime.stream.config import StreamConfig

        written, problems, rules = self._written(definition), list(definition.problems), None
        problems += [problem for table in self._tables_of(definition) for problem in table.definition.problems]
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

    def _written(self, definition: Definition) -> dict[str, Any]:
        """Return the operator as a file would have it; with a join it is a pipeline that has the table, too."""
        for table in self._tables_of(definition):
            own = {"name": table.source.name, **table.definition.as_yaml()}
            return {**definition.as_pipeline().as_yaml(), "table": own}
        return definition.as_yaml()

    def _tables_of(self, definition: Definition) -> list[_Table]:
        """Return the tables that steps of the chain join: none or one, or the configuration has a problem."""
        steps = definition.steps or (definition.options,)
        return [self._tables[step["table"]] for step in steps if step.get("table") in self._tables]

    def _rows(self, definition: Definition) -> tuple[DataFrame, Columns]:
        """Return the DataFrame of the query, and its columns: those of the stream, or of the stream and its table."""
        from tidegate.runtime.stream.columns import JoinedColumns

        for _, table in self._tables_of(definition):
            columns = JoinedColumns(stream=self._columns, table=table._columns)
            return columns.united(self._df, table._df), columns
        return self._df, self._columns

    def _results(self, definition: Definition, config: StreamConfig) -> Results:
        """Return what is known of the results."""
        from pyspark.sql.types import StructType

        from tidegate.application.frames.result_types import Results, values_of

        value, keys = definition.types.get("value"), self._key_type
        if not isinstance(value, Mapping) or not isinstance(self._value_type, StructType):
            return Results(keys, None)
        before = Values.of_fields(schema_of(value["json"]))
        table_type = next((table._value_type for _, table in self._tables_of(definition)), None)
        return Results(keys, values_of(config.rules, before, self._value_type, table_type))

    def _placed(self, definition: Definition, problems: tuple[Problem, ...]) -> Iterator[Problem]:
        """Yield the problems with the places of their calls; none that may follow from values of unknown type."""
        tables = self._tables_of(definition)
        for problem in problems:
            if tables and problem.where.startswith(_OF_TABLE):
                placed = tables[0].definition.placed(replace(problem, where=problem.where.removeprefix(_OF_TABLE)))
            else:
                placed = definition.placed(problem) if self._value_type is not None else None
            if placed is not None:
                yield placed


class TwoFrames(FrameSource):
    """Two streaming DataFrames whose records are joined."""

    def __init__(self, left: FrameSource, right: FrameSource) -> None:
        value_type = None if right._value_type is None else left._value_type
        super().__init__(left._df, left._columns, key_type=left._key_type, value_type=value_type)
        self._right = right

    def _rows(self, definition: Definition) -> tuple[DataFrame, Columns]:
        """Return the DataFrame of the query, with the rows of both, and its columns."""
        from tidegate.runtime.stream.columns import TwoStreams

        columns = TwoStreams(left=self._columns, right=self._right._columns)
        return columns.united(self._df, self._right._df), columns

    def _results(self, definition: Definition, config: StreamConfig) -> Results:
        """Return what is known of the results: pairs of structs have the types of both DataFrames."""
        from tidegate.application.frames.result_types import Results, pairs_of

        return Results(self._key_type, pairs_of(left=self._value_type, right=self._right._value_type))


class _Table(NamedTuple):
    """A table that the stream is joined with: its definition, and its DataFrame."""

    definition: Definition
    source: FrameSource


_OF_TABLE = "table."
"""How the place of a problem begins that a pipeline's own table has."""

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
