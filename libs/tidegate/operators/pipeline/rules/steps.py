"""The rules of a pipeline's steps: operators, which hold state and have a name, and stateless steps."""

from __future__ import annotations

from typing import Annotated, Any, TypeAlias

from pydantic import Field, SerializeAsAny, model_serializer

from tidegate.contracts.config import Config, KeyRules, Name, OperatorRules
from tidegate.contracts.values import Fields, as_written

OF_THE_PIPELINE = frozenset({*OperatorRules.model_fields, *KeyRules.model_fields} - {"kind"})
"""Options that the pipeline has for all of its steps: what is said of its input and of its log."""

Sql = Annotated[str, Field(examples=["count < 3"])]


class Stateful(Config):
    """A step that holds state: an operator of any kind that has results."""

    name: Name
    """Name of the step: at most 63 characters of a-z, 0-9 and _; its state and its views have it."""
    rules: SerializeAsAny[OperatorRules]
    """The kind and the options of the operator."""
    emits: Fields | None = None
    """Fields that only its user knows: what a function emits, or, of a join, the fields of the table's values."""

    @model_serializer
    def _as_written(self) -> dict[str, Any]:
        """Return the step as a file has it: without options that are determined by other parts of the pipeline."""
        written = self.rules.model_fields_set - OF_THE_PIPELINE
        options = self.rules.model_dump(mode="json", exclude_defaults=True, include=set(written))
        emits = {} if self.emits is None else {"emits": as_written(self.emits)}
        return {"name": self.name, "kind": self.rules.kind, **options, **emits}


class Filter(Config):
    """A step that drops the rows for which the condition is not true. Their time still counts."""

    filter: Sql
    """The condition, in SQL."""


class Require(Config):
    """A step that rejects the rows for which the condition is not true. They move no time."""

    require: Sql
    """The condition, in SQL."""
    reason: Annotated[str, Field(min_length=1)]
    """Why such rows are rejected."""


class _Named(Config):
    """A step with one option: expressions by name."""

    def __hash__(self) -> int:
        """Return a hash, which a frozen model with a mapping would lack: tasks keep operators by their rules."""
        return hash(frozenset(pair for (_, named) in self for pair in named.items()))


class WithColumns(_Named):
    """A step that adds fields to the values, or replaces them. Values are JSON objects behind it."""

    with_columns: Annotated[dict[str, Sql], Field(min_length=1)]
    """Expressions in SQL, by the name of the field."""


class Select(_Named):
    """A step that replaces values by objects with these fields alone."""

    select: Annotated[dict[str, Sql], Field(min_length=1)]
    """Expressions in SQL, by the name of the field."""


Stateless: TypeAlias = Filter | Require | WithColumns | Select
StepRules: TypeAlias = Stateful | Stateless
STATELESS: dict[str, type[Filter] | type[Require] | type[WithColumns] | type[Select]] = {
    "filter": Filter,
    "require": Require,
    "with_columns": WithColumns,
    "select": Select,
}
