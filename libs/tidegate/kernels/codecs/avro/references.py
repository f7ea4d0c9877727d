"""Parses schemas of Avro that refer to types which other schemas define."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import orjson

_NAMED = ("record", "error", "enum", "fixed")


def parsed(text: str, imports: Iterable[str]) -> tuple[Any, dict[str, Any]]:
    """Return the schema as fastavro has it, and the types with names, by their full names.

    `imports`: texts of schemas that define types to which it refers. Only those that it needs are read: others may
    define the same types. Raise what fastavro raises for a text that is no schema.
    """
    named: dict[str, Any] = {}
    known = {name: schema for schema in _loaded(imports) for name in _defined(schema, "")}
    return _parsed(orjson.loads(text), known, named), named


def _loaded(texts: Iterable[str]) -> Iterator[Any]:
    for text in texts:
        try:
            yield orjson.loads(text)
        except orjson.JSONDecodeError:
            continue  # nothing can refer to it


def _defined(schema: Any, namespace: str) -> Iterator[str]:
    """Yield the full names of the types that a schema defines."""
    if isinstance(schema, list):
        for each in schema:
            yield from _defined(each, namespace)
    if not isinstance(schema, Mapping):
        return
    name = schema.get("name")
    if schema.get("type") in _NAMED and isinstance(name, str):
        namespace = name.rpartition(".")[0] if "." in name else schema.get("namespace", namespace)
        yield f"{namespace}.{name.rpartition('.')[2]}" if namespace else name
    fields = schema.get("fields")
    for part in (
        schema.get("type"),
        schema.get("items"),
        schema.get("values"),
        *(fields if isinstance(fields, list) else ()),
    ):
        yield from _defined(part, namespace)


def _parsed(schema: Any, known: Mapping[str, Any], named: dict[str, Any]) -> Any:
    """Parse the schema into `named`, behind what it refers to. `known`: schemas, by the names that they define."""
    from fastavro.schema import UnknownType, parse_schema

    while True:
        trial = dict(named)
        try:
            found = parse_schema(schema, trial)
        except UnknownType as unknown:
            if not isinstance(unknown.name, str) or unknown.name not in known:
                raise
            needed = known[unknown.name]
            others = {name: each for name, each in known.items() if each is not needed}  # none refers to itself
            _parsed(needed, others, named)
        else:
            named.update(trial)
            return found
