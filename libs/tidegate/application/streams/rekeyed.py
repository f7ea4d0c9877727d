"""Rows with another key: they go through a topic before anything is held for that key."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Generic

from tidegate.application.definitions.chains import Definitions
from tidegate.application.definitions.definition import Definition
from tidegate.application.formats import Format
from tidegate.application.options import Fault, Unusable
from tidegate.application.places import caller
from tidegate.application.streams.output import register, topic_option, written_as
from tidegate.application.streams.value import Results, Value
from tidegate.contracts.naming import NAME_FORM, is_name


@dataclass(frozen=True)
class Rekeyed(Value, Generic[Results]):
    """Rows with another key, which go to a topic: there each key has its partition."""

    results: Callable[[Definition, Definitions], Results] = field(repr=False)

    others: ClassVar[Mapping[str, str]] = {
        **dict.fromkeys(
            ("window", "suppress", "deduplicate", "join", "apply", "merge"),
            "write .through(TOPIC, partitions=NUMBER) first: only there are all rows of a key in one partition",
        ),
        **dict.fromkeys(
            ("filter", "require", "with_columns", "select", "map", "flat_map", "named"),
            "call it before .select_key(...), or behind .through(TOPIC, partitions=NUMBER)",
        ),
        "keep": "write the rows to a topic: .to(TOPIC, partitions=NUMBER)",
    }

    def through(self, topic: str, *, partitions: int, name: str | None = None) -> Results:
        """Register the operator that writes the rows to the topic; return them as another one reads them from there.

        So what follows has all rows of a key in one partition: that of the key as Kafka's own clients choose it among
        the topic's `partitions`. Its keys and values have the types that are known here, and timestamps stay. Late and
        rejected records go to the same topic of dead letters, and time advances on its own as before. `name`: of the
        operator that reads the topic; default: NAME_TOPIC, with `_` for what names cannot have.
        """
        place, written = caller(), _by_keys(topic, partitions)
        register(self, "through", written)
        known = self.definition.options
        options = {"input": written["output"]} | {option: known.get(option) for option in _KEPT_BEHIND}
        called = _name_behind(self.definition.name, topic) if name is None else name
        stream = Definition.begun(called, ".through", place, options).as_pipeline()
        if isinstance(written["output"], Unusable):
            stream = replace(stream, problems=())  # the operator that writes the topic has reported it
        self.definitions.begin(stream)
        return self.results(stream, self.definitions)

    def to(self, topic: str, *, partitions: int, value: Format | None = None) -> None:
        """Register the operator; write the rows to the topic, exactly once, and keep them in the lake too.

        Each row is in the partition of its new key, as Kafka's own clients choose it among the topic's `partitions`.
        `value`: the format in which values are written: one of Kafka's own serializers, for their only field, Avro
        or Protobuf.
        """
        register(written_as(self, value), "to", _by_keys(topic, partitions))


def _by_keys(topic: str, partitions: int) -> dict[str, Any]:
    """Return the options of an output by keys. Without a topic that can be used, nothing needs its partitions."""
    output = topic_option(topic)
    return {"output": output, "output_partitions": None if isinstance(output, Unusable) else partitions}


_KEPT_BEHIND = ("dead_letters", "idle_after", "rewind_window", "time")
"""Options of a stream that count for what reads it through a topic, too."""


def _name_behind(name: str, topic: object) -> Any:
    """Return the name of the operator that reads a stream through the topic; Unusable if it is too long."""
    found = re.sub(r"[^a-z0-9_]", "_", f"{name}_{topic}".lower())
    if is_name(found):
        return found
    return Unusable(Fault(found, "the name is too long", f"add name=..., with {NAME_FORM}"))
