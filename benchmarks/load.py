"""The standard load: updates of 10,000 keys, up to 5 s out of order, written as fast as the broker accepts them.

Record i has a key `k%06d` and a timestamp that advances by 1 ms every 10 records (or so that the records span another
period), minus a random lateness. A key stays in its partition, so each partition holds its keys' records in the order
of i.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from tidegate.devkit.bulk_load import write_columns
from tidegate.kernels.record_format.record_batch import OutgoingColumns
from tidegate.runtime.kafka.client import KafkaClient
from tidegate.runtime.kafka.topics import create_topic

RECORDS, KEYS, PARTITIONS = 4_000_000, 10_000, 4
FIRST_TIMESTAMP, RECORDS_PER_MS, LATENESS_MS = 1_700_000_000_000, 10, 5_000
CHUNK, SEED, TIMEOUT_S = 250_000, 1, 120.0
Numbers = npt.NDArray[np.int64]
Values = Callable[[Numbers, Numbers], pa.Array]
"""Makes the values of records from the numbers of the records and of their keys."""


def json_values(number: Numbers, key: Numbers) -> pa.Array:
    """Return JSON values with the number of each record, an amount, and a text that fills them up."""
    amount = pa.array(number % 1_000).cast(pa.string())
    value = ['{"id":', pa.array(number).cast(pa.string()), ',"v":', amount, ',"pad":"abcdefghijklmnopqrstuvwxyz"}', ""]
    return pc.binary_join_element_wise(*value)


def load(
    bootstrap: str,
    topic: str,
    *,
    records: int = RECORDS,
    keys: int = KEYS,
    partitions: int = PARTITIONS,
    span_ms: int | None = None,
    seed: int = SEED,
    values: Values = json_values,
) -> int:
    """Create the topic, produce the load to it, and return the number of records.

    Timestamps are spread over `span_ms`. Another seed gives other keys and another lateness.
    """
    options = {"bootstrap.servers": bootstrap}
    create_topic(options, topic, partitions)
    key, timestamp = columns(records, keys, records // RECORDS_PER_MS if span_ms is None else span_ms, seed)
    with ThreadPoolExecutor(partitions) as threads:
        written = threads.map(
            lambda partition: _fill(KafkaClient(options), topic, partition, partitions, key, timestamp, values),
            range(partitions),
        )
    return sum(written)


def columns(records: int, keys: int, span_ms: int, seed: int = SEED) -> tuple[Numbers, Numbers]:
    """Return the key's number and the timestamp (ms) of every record; the same arguments give the same result."""
    random = np.random.default_rng(seed)
    key = random.integers(0, keys, records)
    timestamp = FIRST_TIMESTAMP + np.arange(records) * span_ms // records - random.integers(0, LATENESS_MS, records)
    return key, timestamp


def _fill(
    client: KafkaClient,
    topic: str,
    partition: int,
    partitions: int,
    key: Numbers,
    timestamp: Numbers,
    values: Values,
) -> int:
    mine = np.flatnonzero(key % partitions == partition)
    try:
        for start in range(0, len(mine), CHUNK):
            chosen = mine[start : start + CHUNK]
            write_columns(client, topic, partition, outgoing(chosen, key[chosen], timestamp[chosen], values), TIMEOUT_S)
    finally:
        client.close()
    return len(mine)


def outgoing(
    number: Numbers,
    key: Numbers,
    timestamp: Numbers,
    values: Values = json_values,
) -> OutgoingColumns:
    """Return the records with these numbers, ready to be produced."""
    return OutgoingColumns(
        key=key_names(key).cast(pa.binary()),
        value=values(number, key).cast(pa.binary()),
        headers=pa.nulls(len(number), pa.binary()),
        timestamp=timestamp,
    )


def key_names(key: Numbers) -> pa.Array:
    """Return the keys with these numbers."""
    return pc.binary_join_element_wise("k", pc.utf8_lpad(pa.array(key).cast(pa.string()), 6, "0"), "")
