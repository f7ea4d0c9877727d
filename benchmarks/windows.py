"""Windowed counts with final results against Kafka Streams: 10 s windows, 5 s grace, an in-memory store for the peer.

4 partitions, 4 million records, 10,000 keys; exactly once both, timed as the suppression service is.
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
    """Records per second of the service and of Kafka Streams, alternating, and the median of the ratios run by run."""
    return measure_against(PEER, OPERATOR, say)
