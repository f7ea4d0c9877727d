"""Restart after SIGKILL with 10 million keys held: seconds from process start to the first new commit, one partition.

The service runs from the command line, with a real broker and a continuous input. It is killed (SIGKILL to its whole
session) 20 times, alternately at a random moment within three seconds after its first commit, and after the kernel of
an attempt but before its commit, so that the next start finds a failed attempt.

The start is measured in two parts: up to the commit of the claim (Python, JVM, Spark, claim), and from there on
(workers, local states, first batch). Starts after a kill inside a kernel, which need a rebuild from the log, are
counted too.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from random import Random
from statistics import median
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tests.lakes import lake_at
from tidegate.contracts.batch_metadata import BatchMeta
from tidegate.devkit.bulk_load import write_columns
from tidegate.devkit.embedded_broker import Broker
from tidegate.kernels.record_format.record_batch import OutgoingColumns
from tidegate.runtime.install.paths import jars
from tidegate.runtime.kafka.client import KafkaClient
from tidegate.runtime.kafka.topics import create_topic
from tidegate.state.delta_log.log_version import LogVersion
from tidegate.state.earlier_batches import metas_of

HELD, KILLS, PARTITIONS = 10_000_000, 20, 1
CHUNK, RATE, STEP_S = 250_000, 2_000, 0.05
LONGEST_S, FILL_S, START_S = 3.0, 900.0, 300.0
TOPIC, OPERATOR = "records", "held"
FIRST_TIMESTAMP = 1_700_000_000_000


@dataclass(frozen=True, kw_only=True)
class Start:
    """One start: seconds to the claim and to the first batch after it, and how the local states were recovered."""

    claim_s: float
    commit_s: float
    ways: tuple[str, ...]


def measure(say: Any, held: int = HELD, partitions: int = PARTITIONS) -> dict[str, float]:
    """Return the seconds from process start to the first new commit (minimum, median and maximum) and their parts."""
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        with Broker.start(folder / "kafka", jars("broker")) as broker:
            file = configured(folder, broker.bootstrap, partitions)
            client = KafkaClient({"bootstrap.servers": broker.bootstrap})
            create_topic({"bootstrap.servers": broker.bootstrap}, TOPIC, partitions)
            fill(client, held, partitions)
            say(f"{held:,} records are in the topic")
            run_until_held(file, folder, held)
            say(f"{held:,} keys are held")
            with continuous_updates(client, held, partitions):
                starts = list(killed(file, folder, say))
    return figures(starts)


def figures(starts: list[Start]) -> dict[str, float]:
    """Return the figures of the starts."""
    seconds = [start.commit_s for start in starts]
    ways = Counter(way for start in starts for way in start.ways)
    return {
        "start_to_commit_s_min": min(seconds),
        "start_to_commit_s_p50": median(seconds),
        "start_to_commit_s_max": max(seconds),
        "start_to_claim_s_p50": median(start.claim_s for start in starts),
        "claim_to_commit_s_p50": median(start.commit_s - start.claim_s for start in starts),
        **{f"ways_{way.replace(' ', '_')}": float(count) for way, count in ways.items()},
    }


def configured(folder: Path, bootstrap: str, partitions: int) -> Path:
    """Write the application's configuration file, with one operator that holds every key, and return its path."""
    file = folder / "kills.json"
    operator = {"kind": "suppression", "input": TOPIC, "output": "out", "until": {"time_limit": "10000d"}}
    given = {"application": "kills", "keep_output": "1d", "kafka": {"bootstrap.servers": bootstrap}}
    file.write_text(
        json.dumps(
            given | {"lake": str(folder / "lake"), "state": str(folder / "state"), "operators": {OPERATOR: operator}}
        )
    )
    create_topic({"bootstrap.servers": bootstrap}, "out", partitions)
    return file


def fill(client: KafkaClient, held: int, partitions: int) -> None:
    """Produce one record for each of that many keys."""
    for first in range(0, held, CHUNK):
        _write(client, np.arange(first, min(first + CHUNK, held)), partitions, first)


def _write(client: KafkaClient, keys: Any, partitions: int, first: int) -> None:
    for partition in range(partitions):
        chosen = keys[keys % partitions == partition]
        digits = pc.utf8_lpad(pa.array(chosen).cast(pa.string()), 9, "0")
        columns = OutgoingColumns(
            key=pc.binary_join_element_wise("k", digits, "").cast(pa.binary()),
            value=pc.binary_join_element_wise('{"id":', digits, ',"pad":"abcdefghijklmnop"}', "").cast(pa.binary()),
            headers=pa.nulls(len(chosen), pa.binary()),
            timestamp=np.full(len(chosen), FIRST_TIMESTAMP + first),
        )
        write_columns(client, TOPIC, partition, columns, START_S)


@contextmanager
def continuous_updates(client: KafkaClient, held: int, partitions: int) -> Iterator[None]:
    """Meanwhile produce updates of held keys, RATE per second."""
    stop, random = threading.Event(), np.random.default_rng(1)

    def feed() -> None:
        number = held
        while not stop.wait(STEP_S):
            number += 1
            _write(client, random.integers(0, held, int(RATE * STEP_S)), partitions, number)

    feeder = threading.Thread(target=feed)
    feeder.start()
    try:
        yield
    finally:
        stop.set()
        feeder.join()


class Service:
    """A process of `tidegate run` in its own session; `started` is its wall-clock start."""

    def __init__(self, file: Path, *more: str, kill_at: str = "") -> None:
        self.started = time.time()
        with file.with_suffix(".log").open("a") as out:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "tidegate.cli.main", "run", str(file), *more],
                stdout=out,
                stderr=out,
                env={**os.environ, "TIDEGATE_KILL_AT": kill_at},
                start_new_session=True,
            )

    def kill(self) -> None:
        """Kill the whole session and wait for the process."""
        os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()

    def require_alive(self) -> None:
        """Raise RuntimeError if the process has ended by itself."""
        if self.process.poll() is not None:
            raise RuntimeError(f"the service has ended with {self.process.returncode}")


def run_until_held(file: Path, folder: Path, held: int) -> None:
    """Run the service until it has read everything and drained. Raise RuntimeError if not all keys are held then."""
    service = Service(file, "--until-caught-up")
    if service.process.wait(FILL_S) != 0:
        raise RuntimeError(file.with_suffix(".log").read_text()[-2_000:])
    newest = _log(folder).newest()
    if newest is None or sum(known.totals.held for known in newest.partitions.values()) != held:
        raise RuntimeError("not all keys are held")


def killed(file: Path, folder: Path, say: Any) -> Iterator[Start]:
    """Kill the service again and again, and yield each start up to its first new commit."""
    random = Random(1)
    service = Service(file)
    first_batch(service, folder)
    for number in range(KILLS):
        time.sleep(random.uniform(0.0, LONGEST_S))
        service.kill()
        if number % 2:
            doomed = Service(file, kill_at="after_complete_header:3")
            doomed.process.wait(START_S)
        service = Service(file)
        start = first_batch(service, folder)
        say(f"{number + 1}: claim {start.claim_s:.2f} s, first commit {start.commit_s:.2f} s; {start.ways}")
        yield start
    service.kill()


def first_batch(service: Service, folder: Path) -> Start:
    """Wait for the service's first batch in the log and return its start."""
    log = _log(folder)
    before = log.newest()
    after = -1 if before is None else before.batch
    while True:
        service.require_alive()
        time.sleep(0.01)
        if (newest := _log(folder).newest()) is None or newest.batch <= after or newest.action != "batch":
            continue
        log = _log(folder)
        metas = [meta for meta in metas_of(log, range(after + 1, newest.batch + 1)) if meta.epoch == newest.epoch]
        claim, batch = (next(meta for meta in metas if meta.action == action) for action in ("claim", "batch"))
        times = {version: _written_s(log, version) for version in range(log.version - len(metas) + 1, log.version + 1)}
        return Start(
            claim_s=times[log.version - len(metas) + 1 + metas.index(claim)] - service.started,
            commit_s=times[log.version - len(metas) + 1 + metas.index(batch)] - service.started,
            ways=ways_of(batch),
        )


def ways_of(batch: BatchMeta) -> tuple[str, ...]:
    """Return how the states of the batch's partitions were recovered."""
    return tuple((change.recovered or "go on").partition(":")[0] for change in batch.changed.values())


def _written_s(log: LogVersion, version: int) -> float:
    return (log.place.folder / "_delta_log" / f"{version:020}.json").stat().st_mtime


def _log(folder: Path) -> LogVersion:
    return LogVersion.at(lake_at(folder / "lake" / OPERATOR), None)
