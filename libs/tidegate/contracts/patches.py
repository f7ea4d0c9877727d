"""JSON merge patches (RFC 7396) between values, and the conversion of JSON to annotated types.

The patch of a mapping has the entries that differ, with null for those that were removed. Any other value is replaced
as a whole.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import fields, is_dataclass
from functools import cache
from types import NoneType, UnionType
from typing import Any, get_args, get_origin, get_type_hints


def differs(before: Any, now: Any) -> bool:
    """Return whether the values differ. Identity is compared first: most entries are the same objects as before."""
    return before is not now and before != now


def changes(before: Any, now: Any) -> Any:
    """Return the patch that turns `before` into `now`; entries of mappings are never None."""
    if not (isinstance(before, Mapping) and isinstance(now, Mapping)):
        return now
    # rule: metadata-as-change/fields
    differing = {
        key: changes(before.get(key), value)
        for key, value in now.items()
        if key not in before or differs(before[key], value)
    }
    # rule: metadata-builds-up/gone
    return differing | dict.fromkeys(before.keys() - now.keys())


def patched(before: Any, patch: Any) -> Any:
    """Return `before` with the patch applied; inverse of `changes`. Parts that the patch does not touch are shared."""
    if not (isinstance(before, Mapping) and isinstance(patch, Mapping)):
        return patch
    gone = [key for key, value in patch.items() if value is None]
    now = {**before, **{key: patched(before.get(key), value) for key, value in patch.items()}}
    for key in gone:
        del now[key]
    return now


def typed(hint: Any, raw: Any) -> Any:
    """Return the JSON value converted to the annotated type: keys that are numbers, tuples, dataclasses.

    A type with a `from_raw` converts its JSON itself. Fields that a dataclass does not know are ignored: a later
    release may have added them.
    """
    return None if raw is None else _converter(hint)(raw)


@cache
def _converter(hint: Any) -> Callable[[Any], Any]:
    """Return the function that converts JSON to the annotated type. It is made once, as logs have many documents."""
    if hasattr(hint, "from_raw"):
        converted: Callable[[Any], Any] = hint.from_raw
        return converted
    if isinstance(hint, type) and is_dataclass(hint):
        known = field_types(hint)
        return lambda raw: hint(**{name: typed(known[name], value) for name, value in raw.items() if name in known})
    origin, arguments = get_origin(hint), get_args(hint)
    if origin is dict:
        return _converter_of_mappings(*arguments)
    if origin is tuple:
        return lambda raw: tuple(tuple(each) if isinstance(each, list) else each for each in raw)
    if origin is UnionType:
        return _converter(next(one for one in arguments if one is not NoneType))
    return _as_it_is


def _converter_of_mappings(key: Any, value: Any) -> Callable[[Any], Any]:
    named: Callable[[str], Any] = int if key is int else _as_it_is
    if (convert := _converter(value)) is _as_it_is:
        return lambda raw: {named(name): each for name, each in raw.items()}
    return lambda raw: {named(name): None if each is None else convert(each) for name, each in raw.items()}


def _as_it_is(raw: Any) -> Any:
    return raw


@cache
def field_types(dataclass: type) -> dict[str, Any]:
    """Return the types of a dataclass's fields."""
    hints = get_type_hints(dataclass)
    return {field.name: hints[field.name] for field in fields(dataclass)}
