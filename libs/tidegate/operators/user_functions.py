"""Functions of the user's own: `module:function` in a configuration."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any

from tidegate.contracts.errors import UserError


def load(name: str, what: str) -> Callable[..., Any]:
    """The function of that name; `what` it is to the operator. Raises UserError if it cannot be loaded."""
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
    """The error of a function that fails or gives something else than it must."""
    remedy = "mend the function and start again; the operator goes on from here"
    return UserError(f"the {what} {fault}", value=name, remedy=remedy)
