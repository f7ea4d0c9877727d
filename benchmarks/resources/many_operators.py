"""A hundred operators of four partitions in one process: what they cost without records, and whether they share.

`idle_*`: no topic gets a record. `lag_*`: each operator gets a record every few seconds, alone and then while one of
them works off a backlog; the lag is the time from producing a record to reading its result.
"""

from __future__ import annotations

import json
import tempfile
import threading
import time
from pathlib import Path
from statistics import median, quantiles
from typing import Any

from confluent_kafka import Producer

from benchmarks.kills import Service
from benchmarks.latency import PARTITIONS, PASS_THROUGH, Reader
from benchmarks.resources import processes
from tidegate.devkit.embedded_broker import Broker
from tidegate.runtime.configuration.application import Application, load
from tidegate.runtime.doctor.status import application_status
from tidegate.runtime.install.paths import jars
from tidegate.runtime.kafka.topics import create_topic

OPERATORS = 100
IDLE_S, LAG_S, STEP_S = 30.0, 30.0, 0.05
BACKLOG, START_S = 4_000_000, 600.0
OUTPUT, BACKLOG_OUTPUT = "results", "backlog_results"


def measure(say: Any) -> dict[str, float]:
    """Return cores, memory, seconds of `status`, and the lag of records with and without a neighbour's backlog."""
    with tempfile.TemporaryDirectory() as scratch, Broker.start(Path(scratch) / "kafka", jars("broker")) as broker:
        file = _configured(Path(scratch), broker.bootstrap)
        application = load(file)
        service = Service(file)
        try:
            started = time.monotonic()
            _await_all(application, service)
            say(f"{OPERATORS} operators run after {time.monotonic() - started:.0f} s")
            found = _idle(service.process.pid, broker.pid)
            say(f"without records: {found['idle_service_cores']:.2f} cores, {found['idle_memory_gb']:.2f} GB")
            found["status_s"] = median(_status_s(application) for _ in range(3))
            found |= _lags(broker.bootstrap, say)
        finally:
            service.kill()
    return found


def _configured(folder: Path, bootstrap: str) -> Path:
    """Create the topics, and return a file with operators that pass records on at once."""
    settings = {"bootstrap.servers": bootstrap}
    for topic in (OUTPUT, BACKLOG_OUTPUT):
        create_topic(settings, topic, PARTITIONS)
    operators = {}
    for number in range(OPERATORS):
        create_topic(settings, _topic(number), PARTITIONS)
        operators[f"operator_{number}"] = PASS_THROUGH | {
            "input": _topic(number),
            "output": OUTPUT if number else BACKLOG_OUTPUT,
        }
    file = folder / "many.json"
    given = {"application": "many", "keep_output": "1d", "kafka": settings, "operators": operators}
    file.write_text(json.dumps(given | {"lake": str(folder / "lake"), "state": str(folder / "state")}))
    return file


def _topic(number: int) -> str:
    return f"records_{number}"


def _await_all(application: Application, service: Service) -> None:
    deadline = time.monotonic() + START_S
    while time.monotonic() < deadline:
        service.require_alive()
        time.sleep(2)
        if all(status["log"] is not None for status in application_status(application).values()):
            return
    raise RuntimeError(f"after {START_S:.0f} s not all operators run")


def _idle(service: int, broker: int) -> dict[str, float]:
    time.sleep(IDLE_S / 2)
    before = [sum(map(processes.cpu_s, processes.tree(pid))) for pid in (service, broker)]
    time.sleep(IDLE_S)
    after = [sum(map(processes.cpu_s, processes.tree(pid))) for pid in (service, broker)]
    used = [(later - earlier) / IDLE_S for earlier, later in zip(before, after, strict=True)]
    memory = sum(map(processes.memory_bytes, processes.tree(service)))
    return {"idle_service_cores": used[0], "idle_broker_cores": used[1], "idle_memory_gb": memory / 1e9}


def _status_s(application: Application) -> float:
    started = time.monotonic()
    application_status(application)
    return time.monotonic() - started


def _lags(bootstrap: str, say: Any) -> dict[str, float]:
    """Return the lag of single records of all operators but the first, which then gets a backlog."""
    reader, producer = Reader(bootstrap, OUTPUT), Producer({"bootstrap.servers": bootstrap, "linger.ms": 1})
    try:
        _few_records(producer, LAG_S / 3)
        found = _percentiles("alone", _few_records_read(reader, producer))
        say(f"a record's result is read after {found['lag_alone_p50_ms']:.0f} ms")
        flood = threading.Thread(target=_flood, args=(bootstrap,))
        flood.start()
        found |= _percentiles("beside_backlog", _few_records_read(reader, producer))
        flood.join()
    finally:
        reader.close()
    return found


def _percentiles(when: str, lags: list[float]) -> dict[str, float]:
    percent = quantiles(lags, n=100)
    return {f"lag_{when}_p50_ms": percent[49], f"lag_{when}_p99_ms": percent[98]}


def _few_records_read(reader: Reader, producer: Producer) -> list[float]:
    """Return the lags of the records of the next LAG_S."""
    began = len(reader.arrivals)
    _few_records(producer, LAG_S)
    time.sleep(2)
    return [lag for _, lag in reader.arrivals[began:]]


def _few_records(producer: Producer, seconds: float) -> None:
    for number in range(int(seconds / STEP_S)):
        operator, now = 1 + number % (OPERATORS - 1), int(time.time() * 1_000)
        producer.produce(_topic(operator), b"{}", b"k%d" % number, number % PARTITIONS, timestamp=now)
        producer.flush()
        time.sleep(STEP_S)


def _flood(bootstrap: str) -> None:
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 20, "queue.buffering.max.messages": 1_000_000})
    for number in range(BACKLOG):
        producer.produce(_topic(0), b"{}", b"k%d" % (number % 1_000), number % PARTITIONS)
        if number % 10_000 == 0:
            producer.poll(0)
            while len(producer) > 500_000:
                producer.poll(0.1)
    producer.flush()
