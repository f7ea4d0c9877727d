"""Tables of options, made from the JSON schema of a configuration type, so that no page can be behind the code."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from pydantic import BaseModel

from tidegate.contracts.event_time import format_duration_ms

DURATION_EXAMPLE, SIZE_EXAMPLE = "30s", "64MiB"
HEAD = ("| option | value | default | what it says |", "| --- | --- | --- | --- |")


class Option(NamedTuple):
    """An option by its place in the file, what it takes, what it is when left out, and what it says."""

    place: str
    value: str
    default: str
    says: str


def option_table(model: type[BaseModel], names: set[str] | None = None) -> str:
    """The Markdown table of the type's options (of these alone), those of objects within them below their own."""
    schema = model.model_json_schema()
    rows = [option for option in options(schema) if names is None or _first(option.place) in names]
    return "\n".join([*HEAD, *(_row(option) for option in rows)])


def options(schema: Mapping[str, Any]) -> Iterator[Option]:
    """Every option that the schema has, the nested ones by their path; one that several objects have is told once."""
    yield from dict.fromkeys(_of_object(schema, schema.get("$defs", {}), ""))


def _of_object(schema: Mapping[str, Any], known: Mapping[str, Any], above: str) -> Iterator[Option]:
    for name, part in schema["properties"].items():
        place = above + name
        default = _default(part, name in schema.get("required", ()))
        yield Option(place, _values(part, known), default, " ".join(part.get("description", "").split()))
        for inner in _objects(part, known):
            if inner["title"] != "JsonField":
                yield from _of_object(inner, known, f"{place}.")


def _objects(part: Mapping[str, Any], known: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """The objects that the option takes."""
    if "$ref" in part:
        return [known[part["$ref"].rpartition("/")[2]]]
    return [found for each in part.get("anyOf", ()) for found in _objects(each, known)]


def _values(part: Mapping[str, Any], known: Mapping[str, Any]) -> str:
    """What it takes, in words."""
    if (written := _written(part)) is not None:
        return written
    if "$ref" in part:
        return _object_words(known[part["$ref"].rpartition("/")[2]])
    told = [_values(each, known) for each in part.get("anyOf", ()) if each.get("type") != "null"]
    return " or ".join(dict.fromkeys(told)) or _plain(part)


def _written(part: Mapping[str, Any]) -> str | None:
    """The word for what has a way of writing of its own; None: it has none."""
    examples = part.get("examples", ())
    if DURATION_EXAMPLE in examples:
        return "duration"
    if SIZE_EXAMPLE in examples:
        return "size"
    if "forever" in examples:
        return "duration or `forever`"
    if "const" in part:
        return f"`{json.dumps(part['const']) if isinstance(part['const'], bool) else part['const']}`"
    return ", ".join(f"`{value}`" for value in part["enum"]) if "enum" in part else None


def _object_words(schema: Mapping[str, Any]) -> str:
    """`{field: ...}`, with the options that it must have."""
    needed = schema.get("required") or list(schema["properties"])[:1]
    return "`{" + ", ".join(f"{name}: ..." for name in needed) + "}`"


def _plain(part: Mapping[str, Any]) -> str:
    if "pattern" in part:
        return "`module:function`"
    kind = {"integer": "whole number", "number": "number", "boolean": "`true`, `false`", "array": "list"}
    return kind.get(part.get("type", ""), "names and values" if part.get("type") == "object" else "text")


def _default(part: Mapping[str, Any], required: bool) -> str:
    if required or ("const" in part and "default" in part):  # the kind of an operator, which its type knows
        return "**required**"
    default = part.get("default")
    if default is None:
        return ""
    if _written(part) == "duration":
        return f"`{format_duration_ms(default)}`"
    return f"`{default}`" if isinstance(default, str | int | float) else ""


def _first(place: str) -> str:
    return place.partition(".")[0]


def _row(option: Option) -> str:
    cells = (f"`{option.place}`", option.value, option.default, option.says)
    return "| " + " | ".join(cell.replace("|", "\\|").replace("<", "&lt;") for cell in cells) + " |"
