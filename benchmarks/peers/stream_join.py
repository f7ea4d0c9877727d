"""The join of two topics, compared with Kafka Streams' join of two streams, both exactly once.

Two topics of 4 partitions and 500,000 records each, 10,000 keys, records up to 5 s out of order; an inner join of
records that are at most 500 ms apart, with a grace of 5 s: a record has one partner on average. Timed like the
suppression service; the results of both sides must be the same. In a left join they are not: Kafka Streams emits a
record alone at once if stream time has passed its window, and again with a partner that comes within the grace.
"""

from __future__ import annotations

from statistics import median
from typing import Any

from benchmarks.load import load
from benchmarks.peers.kafka_streams import run_kafka_streams
from benchmarks.peers.pipelines import results_of
from benchmarks.suppression import INPUT, alternating, loaded, new_output, ratio, service_s

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
    outputs: dict[str, str] = {}
    with loaded(say, records) as (bootstrap, folder):
        load(bootstrap, RIGHT, records=records, seed=RIGHT_SEED)

        def service() -> float:
            outputs["service"] = new_output(bootstrap)
            return service_s(bootstrap, folder, JOIN, output=outputs["service"], records=2 * records)

        def peer() -> float:
            outputs["Kafka Streams"] = new_output(bootstrap)
            return run_kafka_streams(PEER, bootstrap, INPUT, outputs["Kafka Streams"], RIGHT, further_inputs=[RIGHT])

        service()  # warm-up: compiles kernels and grows states
        rates = alternating({"service": service, "Kafka Streams": peer}, say, 2 * records)
        ours, theirs = (results_of(bootstrap, outputs[side]) for side in rates)
        assert ours == theirs, f"{(ours - theirs).total()} of {ours.total()} results are not those of Kafka Streams"
        say(f"both have the same {ours.total():,} results")
    return {
        "service_records_per_s": median(rates["service"]),
        "kafka_streams_records_per_s": median(rates["Kafka Streams"]),
        "ratio": ratio(rates["service"], rates["Kafka Streams"]),
    }
