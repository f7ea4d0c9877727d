"""The rules of a pipeline's steps: operators, which hold state and have a name, and stateless steps."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Annotated, Any, ClassVar, Literal, NamedTuple, TypeAlias

import pyarrow as pa
from pydantic import AfterValidator, Field, SerializeAsAny, model_serializer

from tidegate.contracts.config.base import Config
from tidegate.contracts.config.key_rules import KeyRules, OutputWindows
from tidegate.contracts.config.option_types import FunctionName, Name, Partitions, Topic
from tidegate.contracts.config.rules import OperatorRules
from tidegate.contracts.values import Fields, as_written, field_name
from tidegate.operators.pipeline.rules.value_types import OutputType, RegisteredType, value_as_written

OF_THE_PIPELINE = frozenset({*OperatorRules.model_fields, *KeyRules.model_fields} - {"kind"})
"""Options that the pipeline has for all of its steps: what is said of its input and of its log."""

Sql = Annotated[str, Field(examples=["count < 3"])]
FieldName = Annotated[str, AfterValidator(field_name)]


class _Reader(Config):
    """A step, which reads the one before it, or others that it names."""

    reads: Annotated[Name | tuple[Name, ...] | None, Field(alias="from")] = None
    """Name of the step that it reads, or a list of several, which are merged, or `input`; default: the step before."""

    @property
    def sources(self) -> tuple[str, ...]:
        """Return the names of the steps that it reads; none if it reads the step before it."""
        return (self.reads,) if isinstance(self.reads, str) else self.reads or ()


class _Kept(_Reader):
    """A step that has results."""

    keep: bool = False
    """Whether views show its results, although other steps read them."""


class Stateful(_Kept):
    """A step that holds state: an operator of any kind that has results."""

    OWN: ClassVar[frozenset[str]] = frozenset({"name", "kind", "emits", "table_value", "from", "keep"})
    """Entries of such a step that are no options of its operator."""

    name: Name
    """Name of the step: at most 63 characters of a-z, 0-9 and _; its state and its views have it."""
    rules: SerializeAsAny[OperatorRules]
    """The kind and the options of the operator."""
    emits: Fields | None = None
    """Fields that only its user knows: what a function emits, or, of a join, the fields of the table's values."""
    table_value: RegisteredType | None = None
    """Of a join, the type of the table's values, if they are no JSON: `{avro: ...}` or `{protobuf: ...}`."""

    @model_serializer
    def _as_written(self) -> dict[str, Any]:
        """Return the step as a file has it: without options that are determined by other parts of the pipeline."""
        written = self.rules.model_fields_set - OF_THE_PIPELINE
        options = self.rules.model_dump(mode="json", exclude_defaults=True, include=set(written))
        emits = {} if self.emits is None else {"emits": as_written(self.emits)}
        reads = {"from": list(self.sources) if isinstance(self.reads, tuple) else self.reads} if self.reads else {}
        keep = {"keep": True} if self.keep else {}
        table = {} if self.table_value is None else {"table_value": value_as_written(self.table_value)}
        return {"name": self.name, "kind": self.rules.kind, **reads, **options, **emits, **table, **keep}


class _Nameable(_Kept):
    """A step without state."""

    name: Name | None = None
    """Name by which other steps read it with `from`."""


class Filter(_Nameable):
    """A step that drops the rows for which the condition is not true. Their time still counts."""

    filter: Sql
    """The condition, in SQL."""


ROW = "row"
"""The column in which the function of `flat_map` says from which row each of its rows was made."""


class Call(NamedTuple):
    """What a step calls: a function, by its name, as the method does, and the fields that it must make, if any."""

    function: str
    verb: Literal["filter", "map", "flat_map"]
    emits: pa.Schema | None


class NamedFunction(Config):
    """A function of the user's own, by its name."""

    function: FunctionName
    """`module:function`, over a record batch; it returns a bool for each row."""


class FilterBy(_Nameable):
    """A step that drops the rows that a function does not choose. Their time still counts."""

    filter: NamedFunction
    """The function that chooses."""


class Map(_Nameable):
    """A step that replaces values by objects of the fields that a function makes: one for each row."""

    map: FunctionName
    """`module:function`, over a record batch."""
    emits: Fields
    """The fields that it makes."""


class FlatMap(_Nameable):
    """A step that makes any number of rows of each, with objects of the fields that a function makes as values."""

    flat_map: FunctionName
    """`module:function`, over a record batch; its column `row` says from which row each of its rows was made."""
    emits: Fields
    """The fields that it makes, without `row`."""


class Require(_Nameable):
    """A step that rejects the rows for which the condition is not true. They move no time."""

    require: Sql
    """The condition, in SQL."""
    reason: Annotated[str, Field(min_length=1)]
    """Why such rows are rejected."""


class _Named(_Nameable):
    """A step with expressions by name."""

    def __hash__(self) -> int:
        """Return a hash, which a frozen model with a mapping would lack: tasks keep operators by their rules."""
        return hash(frozenset((name, str(option)) for name, option in self))


class WithColumns(_Named):
    """A step that adds fields to the values, or replaces them. Values are JSON objects behind it."""

    with_columns: Annotated[dict[FieldName, Sql], Field(min_length=1)]
    """Expressions in SQL, by the name of the field."""


class Select(_Named):
    """A step that replaces values by objects with these fields alone."""

    select: Annotated[dict[FieldName, Sql], Field(min_length=1)]
    """Expressions in SQL, by the name of the field."""


class SelectKey(_Nameable):
    """A step that gives rows another key. A row whose new key is null is rejected.

    The rows go to a topic by their new keys; a step that holds state does not read them before.
    """

    select_key: Sql
    """The new key, in SQL. It is written by the serializer of Kafka's for its type."""


class Encode(_Named):
    """A step that writes values in another format, as consumers of a topic expect them."""

    encode: OutputType
    """The format: one of Kafka's own serializers, for the only field of the values, Avro, or Protobuf."""


class Sink(_Reader):
    """A step that writes what it reads to a topic. The step behind it reads the same."""

    to: Topic
    """The topic."""
    key: Literal["kafka_windows"] | None = None
    """How keys name their windows: `kafka_windows`, in Kafka's format; default: headers name them."""
    partitions: Partitions | None = None
    """Number of partitions of the topic; the keys decide in which of them records are, as with Kafka's own clients.
    Default: they are in the partition of their input's number."""

    @property
    def output_windows(self) -> OutputWindows:
        """Return how records name their windows, as the option of an operator has it."""
        return "headers" if self.key is None else "kafka"


Evaluated: TypeAlias = Filter | Require | WithColumns | Select
"""Steps whose expressions are evaluated on columns: those that somebody reads, and no others."""
Called: TypeAlias = FilterBy | Map | FlatMap
"""Steps that call a function with all columns."""
Stateless: TypeAlias = Evaluated | Called | Encode | SelectKey
StepRules: TypeAlias = Stateful | Stateless | Sink
STATELESS: dict[str, type[Stateless]] = {
    "filter": Filter,
    "require": Require,
    "with_columns": WithColumns,
    "select": Select,
    "map": Map,
    "flat_map": FlatMap,
    "encode": Encode,
    "select_key": SelectKey,
}


def as_computed(step: StepRules) -> dict[str, Any]:
    """Return the stateless step as a file has it, without its name, and without what says where its results go."""
    [written] = steps_as_written([step])
    return {option: value for option, value in written.items() if option not in ("keep", "name")}


def steps_as_written(steps: Iterable[StepRules]) -> list[dict[str, Any]]:
    """Return the steps as a file has them."""
    return [step.model_dump(mode="json", by_alias=True, exclude_defaults=True) for step in steps]


def stateless_type(verb: str, raw: Mapping[str, Any]) -> type[Stateless]:
    """Return the type of a stateless step that is written so."""
    return FilterBy if verb == "filter" and isinstance(raw["filter"], Mapping) else STATELESS[verb]


def call_of(step: Called) -> Call:
    """Return what the step calls."""
    match step:
        case FilterBy():
            return Call(step.filter.function, "filter", None)
        case Map():
            return Call(step.map, "map", step.emits)
        case FlatMap():
            return Call(step.flat_map, "flat_map", step.emits)
