"""Large histories: 10 million versions of 100,000 keys compared with 100,000 versions, and the rebuild of a replica.

Batches of 10,000 records are timed from plan to published or committed, alternating between the large and the small
table: batches of the table's service, and of a join without grace that reads the table. Keys have 16 bytes, values 50.
"""

from __future__ import annotations

import shutil
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from threading import Event
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from benchmarks.drivers import claimed
from benchmarks.join import application, new_topic
from benchmarks.latency import PARTITIONS
from benchmarks.load import TIMEOUT_S
from benchmarks.suppression import session
from tidegate.devkit.bulk_load import write_columns
from tidegate.devkit.embedded_broker import Broker
from tidegate.kernels.record_format.record_batch import OutgoingColumns
from tidegate.runtime.batch_loop.driver import OperatorDriver, Wiring
from tidegate.runtime.install.paths import jars
from tidegate.runtime.kafka.client import KafkaClient

MANY, FEW, KEYS, BATCH, LOAD = 10_000_000, 100_000, 100_000, 10_000, 500_000
BATCHES, WARM_BATCHES = 31, 6
FIRST_TIMESTAMP, RECORDS_PER_MS = 1_700_000_000_000, 20
"""First timestamp in ms, and records per ms: so many that 10 million versions are within the retention."""


@dataclass(kw_only=True)
class History:
    """A table with that many versions, and a join that reads it."""

    spark: Any
    bootstrap: str
    folder: Path
    versions: int
    produced: dict[str, int] = field(default_factory=dict)
    took: dict[str, list[float]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.topics = {name: new_topic(self.bootstrap, name) for name in ("facts", "joined", "output")}
        self.described = application(
            self.bootstrap, self.folder, "0", *(self.topics[n] for n in ("joined", "facts", "output"))
        )
        self.drivers = {
            name: OperatorDriver(Wiring(spark=self.spark, application=self.described, name=name))
            for name in ("facts", "joined")
        }

    def fill(self) -> None:
        """Write all versions to the table's compacted log and local state, and start the join."""
        self.produce("facts", np.arange(self.versions) % KEYS)
        facts = self.drivers["facts"]
        facts.run(Event(), until_caught_up=True)
        claimed(facts).compact()
        held = [known.totals.held for known in claimed(facts).newest.partitions.values()]
        assert sum(held) == self.versions
        self.drivers["joined"].start()

    def produce(self, name: str, keys: np.ndarray) -> None:
        """Produce one record per key, to the key's partition, with timestamps that grow from record to record."""
        first = self.produced.get(name, 0)
        self.produced[name] = first + len(keys)
        client = KafkaClient({"bootstrap.servers": self.bootstrap})
        for start in range(0, len(keys), LOAD):
            some = keys[start : start + LOAD]
            at = np.arange(first + start, first + start + len(some))
            for partition in range(PARTITIONS):
                mine = np.flatnonzero(some % PARTITIONS == partition)
                write_columns(client, self.topics[name], partition, _outgoing(some[mine], at[mine]), TIMEOUT_S)
        client.close()

    def batch(self, name: str, number: int) -> None:
        """Run one batch of the operator and record its duration."""
        self.produce(name, np.random.default_rng(number).integers(0, KEYS, BATCH))
        began = time.perf_counter()
        claimed(self.drivers[name]).round()
        self.took.setdefault(name, []).append(1_000 * (time.perf_counter() - began))

    def median_ms(self, name: str) -> float:
        """Return the median duration of the batches after warm-up."""
        return median(self.took[name][WARM_BATCHES:])

    def replica_s(self) -> float:
        """Return the seconds for a batch of one record per partition in which all replicas have to be rebuilt."""
        for replica in self.described.state.rglob("joined.facts"):
            shutil.rmtree(replica)
        self.produce("joined", np.arange(PARTITIONS))
        began = time.perf_counter()
        claimed(self.drivers["joined"]).round()
        return time.perf_counter() - began


def _outgoing(keys: np.ndarray, place: np.ndarray) -> OutgoingColumns:
    digits = pc.utf8_lpad(pa.array(keys).cast(pa.string()), 8, "0")
    number = pc.utf8_lpad(pa.array(place).cast(pa.string()), 12, "0")
    value = pc.binary_join_element_wise('{"reading":"', number, '","pad":"abcdefghijklmnop"}', "")
    return OutgoingColumns(
        key=pc.binary_join_element_wise("airport-", digits, "").cast(pa.binary()),
        value=value.cast(pa.binary()),
        headers=pa.nulls(len(keys), pa.binary()),
        timestamp=FIRST_TIMESTAMP + place // RECORDS_PER_MS,
    )


def measure(say: Callable[[str], Any]) -> dict[str, float]:
    """Return milliseconds of batches on many and few versions, their ratios, and the seconds to rebuild replicas."""
    with (
        tempfile.TemporaryDirectory() as folder,
        Broker.start(Path(folder) / "kafka", jars("broker")) as broker,
        session() as spark,
    ):
        tables = [
            History(spark=spark, bootstrap=broker.bootstrap, folder=Path(folder), versions=versions)
            for versions in (FEW, MANY)
        ]
        for table in tables:
            say(f"filling a table with {table.versions:,} versions")
            table.fill()
        few, many = tables
        for name in ("facts", "joined"):
            say(f"batches of {name}")
            for number in range(BATCHES + WARM_BATCHES):
                few.batch(name, number)
                many.batch(name, number)
        figures = {"replica_s": many.replica_s()}
    for name in ("facts", "joined"):
        figures |= {f"{name}_many_ms": many.median_ms(name), f"{name}_few_ms": few.median_ms(name)}
        figures[f"{name}_batch_ratio"] = many.median_ms(name) / few.median_ms(name)
    return figures
