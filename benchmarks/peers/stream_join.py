"""The join of two topics, compared with Kafka Streams' join of two streams, both exactly once.

Two topics of 4 partitions and 500,000 records each, 10,000 keys, records up to 5 s out of order; an inner join of
records that are at most 500 ms apart, with a grace of 5 s: a record has one partner on average. Timed like the
suppression service; the results of both sides must be the same. In a left join they are not: Kafka Streams emits a
record alone at once if stream time has passed its window, and again with a partner that comes within the grace.
"""

from __future__ import annotations

from typing import Any

from benchmarks.load import load
from benchmarks.peers.equal_results import beside_kafka_streams
from benchmarks.peers.kafka_streams import run_kafka_streams
from benchmarks.suppression import INPUT, loaded, service_s

PEER, RIGHT, RIGHT_SEED = "KafkaStreamsStreamJoin", "right", 2
RECORDS = 500_000
"""Of each topic."""
JOIN = {
    "kind": "stream_stream_join",
    "right": RIGHT,
    "join": "inner",
    "before": "500ms",
    "after": "500ms",
    "grace": "5s",
}


def measure(say: Any, records: int = RECORDS) -> dict[str, float]:
    """Return records of both topics per second, on both sides, and the median ratio. `records`: of each topic.

    Raise AssertionError if the results of the last runs differ.
    """
    with loaded(say, records) as (bootstrap, folder):
        load(bootstrap, RIGHT, records=records, seed=RIGHT_SEED)
        return beside_kafka_streams(
            bootstrap,
            lambda output: service_s(bootstrap, folder, JOIN, output=output, records=2 * records),
            lambda output: run_kafka_streams(PEER, bootstrap, INPUT, output, RIGHT, further_inputs=[RIGHT]),
            say,
            2 * records,
        )
