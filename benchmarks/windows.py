"""Windowed counts with final results compared with Kafka Streams: 10 s windows, 5 s grace.

4 partitions, 4 million records, 10,000 keys; both exactly once, timed like the suppression service. The peer has an
in-memory store.
"""

from __future__ import annotations

from typing import Any

from benchmarks.suppression import measure_against

PEER = "KafkaStreamsWindows"
OPERATOR = {
    "kind": "windowed_aggregation",
    "window": {"tumbling": "10s", "grace": "5s"},
    "aggregate": {"count": True},
    "emit": "final",
}


def measure(say: Any) -> dict[str, float]:
    """Return records per second of the service and of Kafka Streams, alternating, and the median ratio of the runs."""
    return measure_against(PEER, OPERATOR, say)
