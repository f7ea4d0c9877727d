"""Formats of keys and values, event timestamps in values, and how keys name their windows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from tidegate.application.options import Duration


@dataclass(frozen=True)
class Format:
    """A format of keys or values. Operators see bytes; views show keys and values in their format."""

    name: Literal["bytes", "string", "json"]


def bytes_() -> Format:
    """Return the format of plain bytes, which is the default."""
    return Format("bytes")


def string() -> Format:
    """Return the format of UTF-8 text."""
    return Format("string")


def json() -> Format:
    """Return the format of JSON documents."""
    return Format("json")


@dataclass(frozen=True)
class TimestampIn:
    """The top-level field of a JSON value that holds the event timestamp, and the unit of its number."""

    field: str
    unit: Literal["ms", "s", "us"] = "ms"


def timestamp(field: str, *, unit: Literal["ms", "s", "us"] = "ms") -> TimestampIn:
    """Return where the event timestamp is: in this field of a JSON value, a number in that unit."""
    return TimestampIn(field, unit)


@dataclass(frozen=True)
class KafkaWindows:
    """Kafka's format of windowed keys in an output topic: the window is part of the key's bytes."""


def kafka_windows() -> KafkaWindows:
    """Return the format of windowed keys that Kafka Streams and ksqlDB read."""
    return KafkaWindows()


@dataclass(frozen=True)
class TimeWindowedKeys:
    """Kafka's format of time-windowed keys in an input topic, which does not contain the length of the windows."""

    length: Duration


def time_windows(length: Duration) -> TimeWindowedKeys:
    """Return Kafka's format of time-windowed keys, with windows of this length."""
    return TimeWindowedKeys(length)
