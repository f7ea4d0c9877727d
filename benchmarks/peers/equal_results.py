"""Tidegate and a peer at the same work: their speeds, and whether their results are the same."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from statistics import median
from typing import Any, Generic, TypeVar

from benchmarks.suppression import alternating, new_output, ratio
from tidegate.devkit.produce_consume import read_all

Output = TypeVar("Output")


@dataclass(frozen=True)
class Side(Generic[Output]):
    """One of two programs that do the same work.

    `run`: does the work into an output, and returns its seconds. `results`: how often each result is in an output.
    """

    run: Callable[[Output], float]
    results: Callable[[Output], Counter[Any]]


def rates_of_equals(
    sides: Mapping[str, Side[Output]], new: Callable[[], Output], say: Any, records: int
) -> dict[str, list[float]]:
    """Return the records per second of both sides, whose runs alternate, each into a new output.

    Raise AssertionError if the results of their last runs differ.
    """
    outputs: dict[str, Output] = {}

    def timed(name: str) -> float:
        outputs[name] = new()
        return sides[name].run(outputs[name])

    rates = alternating({name: partial(timed, name) for name in sides}, say, records)
    ours, theirs = (side.results(outputs[name]) for name, side in sides.items())
    assert ours == theirs, f"{(ours - theirs).total()} of {ours.total()} results differ from those of {list(sides)[1]}"
    say(f"both have the same {ours.total():,} results")
    return rates


def beside_kafka_streams(
    bootstrap: str, service: Callable[[str], float], peer: Callable[[str], float], say: Any, records: int
) -> dict[str, float]:
    """Return the records per second of both sides, which write to the topic they are given, and the ratio.

    Raise AssertionError if the results of their last runs differ.
    """
    results = partial(_results, bootstrap)
    sides = {"service": Side(service, results), "Kafka Streams": Side(peer, results)}
    service(new_output(bootstrap))  # warm-up: compiles kernels and grows states
    rates = rates_of_equals(sides, partial(new_output, bootstrap), say, records)
    return {
        "service_records_per_s": median(rates["service"]),
        "kafka_streams_records_per_s": median(rates["Kafka Streams"]),
        "ratio": ratio(rates["service"], rates["Kafka Streams"]),
    }


def _results(bootstrap: str, topic: str) -> Counter[tuple[bytes | None, bytes | None, int]]:
    """Return how often each result occurs: key with window, value, and timestamp."""
    partitions = read_all({"bootstrap.servers": bootstrap}, topic)
    return Counter(result for results in partitions for result in results)
