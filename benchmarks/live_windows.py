"""Many live windows: what a batch of 10,000 records takes with 10 million of them, and with 10,000.

Batches are those of the service, Kafka to `read_committed` output, alternating between the two. Windows of 100 ms, one
for each key, whose grace is as long as it takes to have so many live. Every other record of a batch opens a window, and
makes the oldest one give its final result; the others are late updates of any live one.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.latency import started
from benchmarks.scale import FEW, FIRST_TIMESTAMP, HELD, alternating
from benchmarks.suppression import session
from tidegate.devkit.embedded_broker import Broker
from tidegate.runtime.install.paths import jars

KEYS_PER_MS, SIZE_MS = 5, 100


def measure(say: Callable[[str], Any]) -> dict[str, float]:
    """The medians in ms, and how often the one is the other."""
    with tempfile.TemporaryDirectory() as folder, Broker.start(Path(folder) / "kafka", jars("broker")) as broker:
        here = (broker.bootstrap, Path(folder))
        many, few = _with_live(HELD), _with_live(FEW)
        with session() as spark, started(spark, *here, many) as many_live, started(spark, *here, few) as few_live:
            many_ms, few_ms = alternating(broker.bootstrap, {FEW: few_live, HELD: many_live}, _of_keys, say)
    return {"many_ms": many_ms, "few_ms": few_ms, "batch_ratio": many_ms / few_ms}


def _with_live(windows: int) -> dict[str, Any]:
    return {
        "kind": "windowed_aggregation",
        "window": {"tumbling": f"{SIZE_MS}ms", "grace": f"{windows // KEYS_PER_MS}ms"},
        "aggregate": {"count": True},
        "emit": "final",
    }


def _of_keys(first: int, keys: np.ndarray) -> np.ndarray:
    """Each key has one time, and so one window."""
    return FIRST_TIMESTAMP + keys // KEYS_PER_MS
