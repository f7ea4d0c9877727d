"""Warm-up of a process before its first batch: import and compile what a batch needs."""

from __future__ import annotations

import gc
from functools import lru_cache

import numpy as np
import pyarrow as pa

from tidegate.contracts.operator import Operator
from tidegate.contracts.records import Records
from tidegate.kernels.memory.storage import MemoryStorage
from tidegate.kernels.record_format.record_batch import (
    OutgoingColumns,
    Stamp,
    decode,
    encode,
)


def warm_operator(operator: Operator) -> None:
    """Compile the operator's kernels in this process."""
    operator.open(MemoryStorage(operator.layout)).step(Records.from_rows([]), 0)


def warm_codec() -> None:
    """Compile the codec of Kafka's record batches in this process."""
    one = pa.array([b"x"])
    columns = OutgoingColumns(key=one, value=one, headers=pa.nulls(1, pa.binary()), timestamp=np.zeros(1, np.int64))
    stamp = Stamp(operator="", batch=0, seq=np.zeros(1, np.int64), cause_codes=np.zeros(1, np.int8), causes=[""])
    for encoded in encode(columns, stamp, producer_id=0, producer_epoch=0, base_sequence=0, max_batch_bytes=2**20):
        decode(encoded.data, 0, 1, [])


@lru_cache(maxsize=1)
def freeze_loaded_objects() -> None:
    """Exclude everything that the process has loaded so far from garbage collections.

    With all libraries loaded, a full collection takes 90 to 180 ms. PySpark runs one after every task, before the task
    counts as done; a driver's process runs one every few hundred batches.
    """
    gc.collect()
    gc.freeze()
