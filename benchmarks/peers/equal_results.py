"""A service and Kafka Streams at the same work: their speeds, and whether their results are the same."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from functools import partial
from statistics import median
from typing import Any

from benchmarks.suppression import alternating, new_output, ratio
from tidegate.devkit.produce_consume import read_all

Side = Callable[[str], float]
"""Does the work into an output topic, and returns its seconds."""


def beside_kafka_streams(bootstrap: str, service: Side, peer: Side, say: Any, records: int) -> dict[str, float]:
    """Return the records per second of both sides, which alternate after a warm-up of the service, and the ratio.

    Raise AssertionError if the results of their last runs differ.
    """
    topics: dict[str, str] = {}

    def timed(name: str, side: Side) -> float:
        topics[name] = new_output(bootstrap)
        return side(topics[name])

    sides = {"service": partial(timed, "service", service), "Kafka Streams": partial(timed, "Kafka Streams", peer)}
    sides["service"]()  # warm-up: compiles kernels and grows states
    rates = alternating(sides, say, records)
    ours, theirs = (_results(bootstrap, topics[name]) for name in rates)
    assert ours == theirs, f"{(ours - theirs).total()} of {ours.total()} results are not those of Kafka Streams"
    say(f"both have the same {ours.total():,} results")
    return {
        "service_records_per_s": median(rates["service"]),
        "kafka_streams_records_per_s": median(rates["Kafka Streams"]),
        "ratio": ratio(rates["service"], rates["Kafka Streams"]),
    }


def _results(bootstrap: str, topic: str) -> Counter[tuple[bytes | None, bytes | None, int]]:
    """Return how often each result occurs: key with window, value, and timestamp."""
    partitions = read_all({"bootstrap.servers": bootstrap}, topic)
    return Counter(result for results in partitions for result in results)
