"""Where the time of a small batch goes: 1,000 records in 4 partitions, from plan to `read_committed` output.

`recover` to `files` are the parts of a worker's work. `messages` are the plans' way to the worker, and the results' way
back. Medians, in milliseconds.
"""

from __future__ import annotations

import tempfile
import time
from pathlib import Path
from statistics import median
from typing import Any

from confluent_kafka import Producer

from benchmarks.drivers import claimed
from benchmarks.latency import BATCH, BATCHES, WARM_BATCHES, produce, started
from benchmarks.suppression import session
from tidegate.devkit.embedded_broker import Broker
from tidegate.runtime.batch_loop.driver import OperatorDriver
from tidegate.runtime.install.paths import jars

TASK = ("recover", "fetch", "kernel", "output", "files")


def measure(say: Any) -> dict[str, float]:
    """Return the milliseconds of each part of a batch."""
    with tempfile.TemporaryDirectory() as folder, Broker.start(Path(folder) / "kafka", jars("broker")) as broker:
        noted: list[dict[str, float]] = []
        listener = lambda _meta, seconds: noted.append(dict(seconds))  # noqa: E731
        with (
            session() as spark,
            started(spark, broker.bootstrap, Path(folder), listener=listener) as (driver, (source, _)),
        ):
            whole = _run(driver, Producer({"bootstrap.servers": broker.bootstrap}), source)
    rows = [_parts(seconds, total) for seconds, total in zip(noted, whole, strict=True)][WARM_BATCHES:]
    say(f"{len(rows)} batches of {BATCH:,} records")
    return {f"{part}_ms": 1_000 * median(row[part] for row in rows) for part in rows[0]}


def _run(driver: OperatorDriver, producer: Producer, source: str) -> list[float]:
    whole = []
    for number in range(WARM_BATCHES + BATCHES):
        produce(producer, source, number * BATCH, BATCH)
        producer.flush()
        began = time.monotonic()
        claimed(driver).round()
        whole.append(time.monotonic() - began)
    return whole


def _parts(seconds: dict[str, float], whole: float) -> dict[str, float]:
    task = sum(seconds[part] for part in TASK)
    ours = seconds["job"] + seconds["commit"] + seconds["publish"]
    return {
        "whole": whole,
        "plan and look around": whole - ours,
        "messages": seconds["job"] - task,
        **{part: seconds[part] for part in TASK},
        "commit": seconds["commit"],
        "publish": seconds["publish"],
    }
