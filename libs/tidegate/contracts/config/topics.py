"""How a configuration names topics: as plain names, or with a description of their keys and values."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tidegate.contracts.config.base import Config
from tidegate.contracts.config.key_rules import OutputWindows, Windows
from tidegate.contracts.config.option_types import Format
from tidegate.contracts.errors import InvalidValue


class InputKey(Config):
    """The keys of an input topic."""

    windows: Windows = None
    """Same as the operator's `windows`."""
    of: Format = "bytes"
    """Same as the operator's `key_format`."""


class InputTopic(Config):
    """An input topic and a description of its keys."""

    topic: str | list[str]
    """Name of the topic, or the names of several, whose records are merged by time."""
    key: InputKey = InputKey()
    """Description of its keys."""


class OutputKey(Config):
    """The keys of an output topic."""

    windows: OutputWindows = "headers"
    """Same as the operator's `output_windows`."""


class OutputTopic(Config):
    """An output topic and a description of its keys."""

    topic: str
    """Name of the topic."""
    key: OutputKey = OutputKey()
    """Description of its keys."""


MOST_INPUTS = 32
"""Of one operator: a batch reads as much of all of them together as of one."""


def topics_problem(topics: Sequence[object]) -> InvalidValue | None:
    """Return what is wrong with the names of an operator's input topics, taken together; None if nothing is."""
    if not topics:
        return InvalidValue("no topic is named", "name one topic, or several")
    if len(topics) > MOST_INPUTS:
        return InvalidValue(f"{len(topics)} topics are too many to merge", f"name at most {MOST_INPUTS}")
    if twice := [topic for at, topic in enumerate(topics) if topic in topics[:at]]:
        return InvalidValue(f"topic {twice[0]} is named twice", "name each topic once")
    return None


_OF_KEYS = {"input": {"windows": "windows", "of": "key_format"}, "output": {"windows": "output_windows"}}
"""The entries of a topic's `key`, and the operator's option that each of them sets."""


def flatten_topics(raw: Mapping[str, Any]) -> dict[str, Any]:
    """Return an operator's raw configuration with topics as plain names and their `key` entries as options.

    A pipeline may describe the types of its input's keys and values with the topic, and an output as the last step. A
    topic that is described in another form stays as it is; it is refused when the configuration is read.
    """
    flat = _without_types(_without_sink(raw))
    for side, options in _OF_KEYS.items():
        topic = flat.get(side)
        if isinstance(topic, Mapping) and {"topic"} <= set(topic) <= {"topic", "key"}:
            key = topic.get("key", {})
            if isinstance(key, Mapping) and set(key) <= set(options) and not {options[name] for name in key} & set(raw):
                flat |= {side: topic["topic"]} | {options[name]: value for name, value in key.items()}
    return _with_further_inputs(flat)


def _with_further_inputs(raw: dict[str, Any]) -> dict[str, Any]:
    """Return the configuration with the first of several input topics as the input, and the others beside it."""
    topics = raw.get("input")
    if not isinstance(topics, list | tuple) or not topics or "further_inputs" in raw:
        return raw
    first, *others = topics
    return {**raw, "input": first, **({"further_inputs": others} if others else {})}


def with_one_input(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return an operator's options with its input topics in one list, if there are several."""
    if not options.get("further_inputs") or "input" not in options:
        return dict(options)
    left = {name: value for name, value in options.items() if name != "further_inputs"}
    return {**left, "input": [options["input"], *options["further_inputs"]]}


def _without_sink(raw: Mapping[str, Any]) -> dict[str, Any]:
    """Return the configuration with the last step `{to: TOPIC, key: kafka_windows, partitions: N}` as the output."""
    steps = raw.get("steps")
    last = steps[-1] if isinstance(steps, list) and steps else None
    if not isinstance(last, Mapping) or not {"to"} <= set(last) <= {"to", "key", "partitions"} or "output" in raw:
        return dict(raw)
    if last.get("key", "kafka_windows") != "kafka_windows":
        return dict(raw)
    windows = {"output_windows": "kafka"} if "key" in last else {}
    by_keys = {"output_partitions": last["partitions"]} if "partitions" in last else {}
    return {**raw, "steps": raw["steps"][:-1], "output": last["to"], **windows, **by_keys}


def _without_types(raw: Mapping[str, Any]) -> dict[str, Any]:
    """Return the configuration with the types of a pipeline's input beside the name of its topic."""
    topic = raw.get("input")
    if "steps" not in raw or not isinstance(topic, Mapping) or not set(topic) <= {"topic", "key", "value"}:
        return dict(raw)
    types = {side: topic[side] for side in ("key", "value") if isinstance(topic.get(side), str) or side == "value"}
    types = {side: type for side, type in types.items() if side in topic and side not in raw}
    left = {name: value for name, value in topic.items() if name not in types}
    return {**raw, "input": left["topic"] if set(left) == {"topic"} else left, **types}
