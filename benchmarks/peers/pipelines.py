"""Pipelines: KIP-328's chain beside Kafka Streams, and what further steps cost beside a single one.

4 partitions, 4 million records, 10,000 keys; timed like the suppression service, all sides in turns. The peer runs the
same chain, exactly once, with an in-memory store, and both sides' results must be equal: keys with their windows,
counts and timestamps (`time: records`). Three steps that hold state are compared with the slowest of them as an
operator alone, in throughput and in the time of a batch of 1,000 records, of which each step passes on all. Two filters
that drop nothing stand before a suppression: one reads the time, the other a field of JSON values.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import ExitStack, closing
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.latency import PASS_THROUGH, WARM_BATCHES, Batches, started
from benchmarks.load import RECORDS
from benchmarks.peers.equal_results import beside_kafka_streams
from benchmarks.peers.kafka_streams import run_kafka_streams
from benchmarks.suppression import INPUT, OPERATOR, RUNS, alternating, loaded, ratio, service_s, session

PEER = "KafkaStreamsChain"
COMPARED_BATCHES = 300
FILTER_RUNS = 7
"""Runs of one service differ by more than a filter costs, so more of them are compared."""
_COUNTS = {"kind": "windowed_aggregation", "window": {"tumbling": "10s", "grace": "5s"}, "aggregate": {"count": True}}
UPDATES, FINAL = ({**_COUNTS, "emit": emit} for emit in ("updates", "final"))
LIMITED = {"kind": "suppression", "until": {"time_limit": "1s"}}
_COUNTED, _CLOSED = {"name": "counts", **UPDATES}, {"name": "final", "kind": "suppression", "until": "window_close"}


def pipeline(*steps: Mapping[str, Any], **options: Any) -> dict[str, Any]:
    """Return the configuration of a pipeline of these steps."""
    return {"kind": "pipeline", "steps": list(steps), **options}


KIP_328 = pipeline(_COUNTED, _CLOSED, {"filter": "count < 10"}, time="records", output_windows="kafka")
THREE_STEPS = pipeline({"name": "limited", **LIMITED}, _COUNTED, _CLOSED)
_UPDATES = {"name": "updates", **OPERATOR}
FILTERED = pipeline({"filter": "timestamp >= 0"}, _UPDATES)
JSON_FILTERED = pipeline({"filter": "v >= 0"}, _UPDATES, value={"json": {"v": "int64"}})
PASSING = pipeline({"name": "first", **PASS_THROUGH}, _COUNTED, {"name": "last", **PASS_THROUGH})


def measure(say: Any, records: int = RECORDS) -> dict[str, float]:
    """Return the ratios, and the records per second and milliseconds that they are made of; see the module."""
    with loaded(say, records) as (bootstrap, folder):
        return {
            **_beside_kafka_streams(bootstrap, folder, say, records),
            **_three_steps(bootstrap, folder, say, records),
            **_filter(bootstrap, folder, say, records),
            **_latency(bootstrap, folder, say),
        }


def _beside_kafka_streams(bootstrap: str, folder: Path, say: Any, records: int) -> dict[str, float]:
    """Measure KIP-328's chain on both sides. Raise AssertionError if the results of their last runs differ."""
    found = beside_kafka_streams(
        bootstrap,
        lambda output: service_s(bootstrap, folder, KIP_328, output=output, records=records),
        lambda output: run_kafka_streams(PEER, bootstrap, INPUT, output),
        say,
        records,
    )
    return {"kafka_streams_ratio" if name == "ratio" else name: figure for name, figure in found.items()}


def _three_steps(bootstrap: str, folder: Path, say: Any, records: int) -> dict[str, float]:
    """Compare three steps with the slowest of them alone, and with the last two as one operator."""
    sides = {"three steps": THREE_STEPS, "time limit": LIMITED, "updates": UPDATES, "final results": FINAL}
    rates = _rates_of(sides, bootstrap, folder, say, records)
    three, final = rates.pop("three steps"), rates.pop("final results")
    slowest = min(rates.values(), key=median)
    return {
        "three_steps_records_per_s": median(three),
        "slowest_step_alone_records_per_s": median(slowest),
        "three_steps_ratio": ratio(three, slowest),
        "three_steps_to_final_ratio": ratio(three, final),
    }


def _filter(bootstrap: str, folder: Path, say: Any, records: int) -> dict[str, float]:
    """Compare a filter and a suppression with the suppression alone."""
    sides = {"filtered": FILTERED, "filtered by JSON": JSON_FILTERED, "alone": OPERATOR}
    rates = _rates_of(sides, bootstrap, folder, say, records, FILTER_RUNS)
    return {
        "filter_ratio": ratio(rates["filtered"], rates["alone"]),
        "json_filter_ratio": ratio(rates["filtered by JSON"], rates["alone"]),
    }


def _rates_of(
    sides: Mapping[str, dict[str, Any]], bootstrap: str, folder: Path, say: Any, records: int, runs: int = RUNS
) -> dict[str, list[float]]:
    """Return the records per second of services with these configurations, after a warm-up of each."""
    services = {name: partial(service_s, bootstrap, folder, config, records=records) for name, config in sides.items()}
    for service in services.values():
        service()
    return alternating(services, say, records, runs)


def _latency(bootstrap: str, folder: Path, say: Any) -> dict[str, float]:
    """Compare the time of a small batch in three steps with that in the slowest of them alone.

    Two take turns batch by batch, as the machine's speed changes within seconds; no third, which would fill the caches.
    """
    compared = []
    for name, operator in (("nothing held", PASS_THROUGH), ("updates", UPDATES)):
        three, alone = _batch_times(bootstrap, folder, (PASSING, operator))
        say(f"a batch of 1,000 records takes {median(three):.0f} ms in three steps; {name}: {median(alone):.0f} ms")
        compared.append((three, alone))
    three, slowest = max(compared, key=lambda pair: median(pair[1]))
    return {
        "three_steps_batch_ms": median(three),
        "slowest_step_batch_ms": median(slowest),
        "three_steps_latency_ratio": ratio(three, slowest),
    }


def _batch_times(bootstrap: str, folder: Path, operators: Sequence[Mapping[str, Any]]) -> list[list[float]]:
    """Return the milliseconds of each operator's batches, from plan to read."""
    with session() as spark, ExitStack() as open_sides:
        sides = []
        for operator in operators:
            driver, topics = open_sides.enter_context(started(spark, bootstrap, folder, operator))
            sides.append(open_sides.enter_context(closing(Batches(driver, bootstrap, *topics))))
        for _ in range(WARM_BATCHES):
            for side in sides:
                side.next_ms()
        turns = [[side.next_ms() for side in sides] for _ in range(COMPARED_BATCHES)]
    return [list(times) for times in zip(*turns, strict=True)]
