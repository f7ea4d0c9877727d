"""Loads the user's own functions, which a configuration names as `module:function`."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any

from tidegate.contracts.errors import UserError


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
