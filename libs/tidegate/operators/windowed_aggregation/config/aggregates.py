"""What is computed from a window's records, as a configuration writes it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Annotated, Any, Literal, NamedTuple, TypeAlias, get_args

import pyarrow as pa
from pydantic import ConfigDict, PlainSerializer, PlainValidator, model_validator

from tidegate.contracts.config.base import Config
from tidegate.contracts.config.option_types import FunctionName
from tidegate.contracts.config.rules import JsonField
from tidegate.contracts.errors import InvalidValue
from tidegate.contracts.values import Fields, Values

AggregateKind: TypeAlias = Literal["count", "sum", "min", "max", "avg", "first", "last", "collect"]
KINDS: tuple[AggregateKind, ...] = get_args(AggregateKind)
OF_ELEMENTS = ("first", "last", "collect")
_NAMED = "write count, or {max: FIELD}, {max: FIELD.FIELD} for a field within a field, {max: true} for the value itself"

Source: TypeAlias = JsonField | Literal[True]
"""What an aggregate is computed from: a field, or the value itself."""


class NamedAggregate(NamedTuple):
    """An aggregate whose result has a name of the user's: its kind, and what it is computed from."""

    kind: AggregateKind
    source: Source


def read_source(value: object) -> Any:
    """Read what an aggregate is computed from; None of None."""
    if value is None or value is True or isinstance(value, JsonField):
        return value
    if isinstance(value, Mapping):
        return JsonField.model_validate(value)
    raise InvalidValue(
        "neither a field nor true", "write {field: NAME}, or true if the values are numbers, not objects"
    )


def _read_named(value: object) -> NamedAggregate:
    if value == "count":
        return NamedAggregate("count", True)
    if not isinstance(value, Mapping) or len(value) != 1 or not set(value) < set(KINDS) or "count" in value:
        raise InvalidValue("not an aggregate", _NAMED)
    [(kind, source)] = value.items()
    if source is None:
        raise InvalidValue("no field is named", _NAMED)
    return NamedAggregate(kind, JsonField.at(source) if isinstance(source, str) else read_source(source))


def _read(value: object) -> Any:
    """Read an aggregate with a name of its own."""
    return value if isinstance(value, NamedAggregate) else _read_named(value)


def _read_option(value: object) -> Any:
    """Read an aggregate that is named after its kind, or one of any kind that has such a name."""
    if value == "count" or (isinstance(value, Mapping) and set(value) & set(KINDS)):
        return _read_named(value)
    return value if isinstance(value, NamedAggregate) else read_source(value)


def _read_count(value: object) -> Any:
    found = _read_option(value)
    if isinstance(found, JsonField):
        raise InvalidValue("records are counted, not fields", "write count: true")
    return found


def _as_written(found: Source | NamedAggregate | None) -> Any:
    if not isinstance(found, NamedAggregate):
        return found.model_dump(mode="json", exclude_defaults=True) if isinstance(found, JsonField) else found
    return "count" if found.kind == "count" else {found.kind: _source_as_written(found.source)}


def _source_as_written(source: Source) -> Any:
    if isinstance(source, JsonField):
        return {"field": source.field} if "." in (source.field or "") else source.path or source.field
    return source


_written = PlainSerializer(_as_written, return_type=Any, when_used="json")
Named: TypeAlias = Annotated[
    NamedAggregate, PlainValidator(_read, json_schema_input_type=Literal["count"] | dict[str, Any]), _written
]
OfValues: TypeAlias = Annotated[
    Source | NamedAggregate | None,
    PlainValidator(_read_option, json_schema_input_type=JsonField | Literal[True] | None),
    _written,
]
OfRecords: TypeAlias = Annotated[
    Literal[True] | NamedAggregate | None,
    PlainValidator(_read_count, json_schema_input_type=Literal[True] | None),
    _written,
]


class Entry(NamedTuple):
    """An aggregate: the name of its result, its kind, and what it is computed from."""

    name: str
    kind: AggregateKind
    source: Source


class Reduction(Config):
    """A function that merges the values of a window's records into one, two at a time."""

    function: FunctionName
    """`module:function`, over two record batches; it returns a batch with row i of both merged."""
    emits: Fields
    """The fields of the values, which are JSON objects, and of what they are merged into."""


class Aggregates(Config):
    """What is computed from a window's records: results with names of their own, or one result of each kind.

    A single aggregate without a name of its own gives a bare JSON value, all else an object.
    """

    model_config = ConfigDict(extra="allow")

    count: OfRecords = None
    """Number of records; null values count."""
    sum: OfValues = None
    """Sum of a field, or with `true` of values that are numbers themselves: exact for whole numbers of 64 bits."""
    min: OfValues = None
    """Smallest number."""
    max: OfValues = None
    """Largest number."""
    avg: OfValues = None
    """Mean of the numbers."""
    first: OfValues = None
    """Element that arrived first: a field of it, or with `true` its value, which is JSON. Null without elements."""
    last: OfValues = None
    """Element that arrived last."""
    collect: OfValues = None
    """All elements, in the order in which they arrived."""
    function: FunctionName | None = None
    """`module:function` that computes the values, instead of all other aggregates."""
    reduce: Reduction | None = None
    """`{function: module:function, emits: {NAME: TYPE}}`, instead of all other aggregates: a function that merges two
    values into one; a window keeps what its records are merged into, and not the records."""

    __pydantic_extra__: dict[str, Named]

    @model_validator(mode="after")
    def _aggregates_fit_together(self) -> Aggregates:
        if self.alone is None and not self.entries:
            raise InvalidValue(
                "nothing to compute", "write aggregate: {count: true} or aggregate: {NAME: count, NAME: {max: FIELD}}"
            )
        if (self.function is not None and self.reduce is not None) or (self.alone is not None and self.entries):
            raise InvalidValue(
                "the function computes the whole value", "remove the other aggregates, or let the function compute them"
            )
        names = [entry.name.lower() for entry in self.entries]
        if twice := [name for name in names if not name.strip() or names.count(name) > 1]:
            raise InvalidValue(
                f"{twice[0]!r} does not name one result", "name each result, in more than upper and lower case"
            )
        return self

    @property
    def entries(self) -> tuple[Entry, ...]:
        """Return the aggregates in the order of the results: those with the name of a kind come first."""
        given = {name: getattr(self, name) for name in KINDS} | (self.__pydantic_extra__ or {})
        return tuple(_entry(name, found) for name, found in given.items() if found is not None)

    @property
    def gives_objects(self) -> bool:
        """Return whether a result is a JSON object, not a bare value."""
        named = any(isinstance(getattr(self, name), NamedAggregate) for name in KINDS)
        return named or bool(self.__pydantic_extra__) or len(self.entries) > 1

    @property
    def alone(self) -> FunctionName | None:
        """Return the function that computes the whole value; None if there are aggregates."""
        return self.function if self.reduce is None else self.reduce.function

    @property
    def needs_elements(self) -> bool:
        """Return True if values are computed from a window's elements, not from each record as it arrives."""
        return self.alone is not None or any(entry.kind in OF_ELEMENTS for entry in self.entries)

    @property
    def reads_fields(self) -> bool:
        """Return whether an aggregate is computed from a field."""
        return any(isinstance(entry.source, JsonField) for entry in self.entries)

    def unknown_fields(self, values: Values) -> Iterator[InvalidValue]:
        """Yield what is wrong if the values are known to lack a field, or not to have numbers in it."""
        for entry in self.entries:
            if isinstance(entry.source, JsonField):
                try:
                    values.check_field(entry.source.names, is_number=entry.kind not in OF_ELEMENTS)
                except InvalidValue as error:
                    yield error

    def results(self, values: Values) -> Values:
        """Return what is known of the results; numbers of unknown type are doubles."""
        fields = [pa.field(entry.name, _type(entry, values)) for entry in self.entries]
        return Values("object" if self.gives_objects else "single", pa.schema(fields))


def _entry(name: str, found: Source | NamedAggregate) -> Entry:
    return Entry(name, *found) if isinstance(found, NamedAggregate) else Entry(name, name, found)  # type: ignore[arg-type]  # a kind


def _type(entry: Entry, values: Values) -> pa.DataType:
    read = values.type_of(entry.source.names) if isinstance(entry.source, JsonField) else None
    match entry.kind:
        case "count":
            return pa.int64()
        case "avg":
            return pa.float64()
        case "sum" | "min" | "max":
            return pa.int64() if read is not None and pa.types.is_integer(read) else pa.float64()
        case "first" | "last" if read is not None:
            return read
    return pa.large_string()
