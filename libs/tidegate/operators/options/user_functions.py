"""Loads the user's own functions, which a configuration names as `module:function`."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from functools import update_wrapper
from typing import Any

import pyarrow as pa

from tidegate.contracts.errors import UserError


class BatchFunction:
    """A function of a record batch, for a step of a pipeline. What it returns for a row must depend on that row alone.

    `emits`: the fields of the values that it makes; None: it chooses rows, with a bool for each.
    """

    def __init__(self, function: Callable[[pa.RecordBatch], Any], emits: pa.Schema | None) -> None:
        self.function = function
        self.emits = emits
        self.name = f"{function.__module__}:{function.__qualname__}"
        update_wrapper(self, function)

    def __call__(self, rows: pa.RecordBatch) -> Any:
        """Return what the function returns."""
        return self.function(rows)


def load(name: str, what: str) -> Callable[..., Any]:
    """Return the function of that name. Raise UserError if it cannot be loaded or is not callable.

    `what`: the function's role in the operator, for error messages.
    """
    module, _, function = name.partition(":")
    try:
        loaded = getattr(importlib.import_module(module), function)
    except (ImportError, AttributeError) as error:
        remedy = "write module:function, of a module that Spark's Python workers can import"
        raise UserError(f"the {what} cannot be loaded: {error}", value=name, remedy=remedy) from error
    if not callable(loaded):
        raise UserError(f"the {what} is not a function", value=name, remedy="write module:function")
    return loaded  # type: ignore[no-any-return]


def wrong(name: str, what: str, fault: str) -> UserError:
    """Return the error for a function that fails or returns something it must not."""
    remedy = "fix the function and start again; the operator continues from this record"
    return UserError(f"the {what} {fault}", value=name, remedy=remedy)


def checked_batch(found: Any, schema: pa.Schema, refused: Callable[[str], UserError]) -> pa.RecordBatch:
    """Return the batch that a function returned, as the schema has it. A column of nulls alone may lack a type.

    Raise the error that `refused` makes of the fault if it is anything else.
    """
    if not isinstance(found, pa.RecordBatch):
        raise refused(f"returns {described(found)}, not a record batch")
    types = {field.name: field.type for field in found.schema}
    untyped = {name: type for name, type in types.items() if pa.types.is_null(type)}
    if len(types) != found.num_columns or types != dict(zip(schema.names, schema.types, strict=True)) | untyped:
        raise refused(f"returns {fields_of(found.schema)}, not {fields_of(schema)}")
    return pa.record_batch([found[field.name].cast(field.type) for field in schema], schema)


def fields_of(schema: pa.Schema | None) -> str:
    """Return the fields with their types, for messages."""
    return "no fields" if schema is None else ", ".join(f"{field.name}: {field.type}" for field in schema)


def described(found: object) -> str:
    """Return what a function returned, for messages."""
    kind = getattr(found, "type", None) or getattr(found, "dtype", None)
    return type(found).__name__ if kind is None else f"an array of {kind}"
