"""Many live windows: the duration of a batch of 10,000 records with 10 million live windows, and with 10,000.

Batches run from Kafka to `read_committed` output, alternating between the two. Windows have 100 ms, one for each key,
with a grace long enough for that many to be live. Every other record of a batch opens a window and closes the oldest
one, which emits its final result; the others are late updates of any live window.
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
    """Return the medians in ms, and their ratio."""
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
    """Return the timestamps: each key has one, and so one window."""
    return FIRST_TIMESTAMP + keys // KEYS_PER_MS
