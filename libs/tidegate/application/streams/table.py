"""Tables. They have no `to`: streams are joined with them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

from tidegate.application.streams.value import Startable


@dataclass(frozen=True)
class Table(Startable):
    """A table, which streams can be joined with.

    `fields`: those of its values, if they are JSON and known. `value`: the type of its values, if they are Avro or
    Protobuf.
    """

    fields: Mapping[str, Any] | None = field(default=None, compare=False)
    value: Mapping[str, Any] | None = field(default=None, compare=False)

    others: ClassVar[Mapping[str, str]] = {
        "join": "join a stream with it: app.stream(TOPIC, name=...).join(table, how=...)",
        **dict.fromkeys(("to", "keep"), "a table has no results; join a stream with it, or query its views"),
    }
