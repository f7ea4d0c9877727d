"""Runs the service in a session of its own, kills all of it, and reads what any consumer would read."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import yaml
from confluent_kafka import Consumer, Producer, TopicPartition

PARTITIONS = 4
START_TIMEOUT_S = 120


def records(count: int, keys: int = 500, seed: int = 7) -> list[tuple[int, bytes, bytes, int]]:
    """(partition, key, value, timestamp): timestamps up to 5 s out of order, a key always in one partition."""
    rng = random.Random(seed)
    made = []
    for i in range(count):
        key = rng.randrange(keys)
        timestamp = 1_700_000_000_000 + i * 10 - rng.randrange(5_000)
        made.append((key % PARTITIONS, b"k%04d" % key, b'{"n":%d}' % i, timestamp))
    return made


class Feed:
    """Produces records with librdkafka, in steps, on a thread of its own."""

    def __init__(self, bootstrap: str, topic: str) -> None:
        self._topic = topic
        self._producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 5})
        self._thread = threading.Thread()

    def start(self, part: list[tuple[int, bytes, bytes, int]], seconds: float, steps: int = 40) -> None:
        """The part is being produced, spread over the seconds."""
        self.join()
        self._thread = threading.Thread(target=self._feed, args=(part, seconds, steps))
        self._thread.start()

    def join(self) -> None:
        """What was started is produced."""
        if self._thread.ident is not None:
            self._thread.join()

    def _feed(self, part: list[tuple[int, bytes, bytes, int]], seconds: float, steps: int) -> None:
        size = -(-len(part) // steps)
        for start in range(0, len(part), size):
            for partition, key, value, timestamp in part[start : start + size]:
                self._producer.produce(self._topic, value, key, partition, timestamp=timestamp)
            self._producer.flush()
            time.sleep(seconds / steps)


def configure(folder: Path, application: str, bootstrap: str, topic: str, output: str, trigger: str) -> Path:
    """A configuration file with one suppression operator."""
    file = folder / f"{application}.yaml"
    operator = {
        "kind": "suppression",
        "input": topic,
        "output": output,
        "until": {"time_limit": "5s"},
        "buffer": {"max_keys": 400, "when_full": "emit"},
    }
    content = {
        "application": application,
        "lake": f"./{application}/lake",
        "state": f"./{application}/state",
        "keep_output": "forever",
        "kafka": {"bootstrap.servers": bootstrap},
        "spark": {"master": "local[2]"},
        "trigger": trigger,
        "operators": {"updates": operator},
    }
    file.write_text(yaml.safe_dump(content))
    return file


class Service:
    """`tidegate run` in a session of its own, so that all of its processes can be killed at once."""

    def __init__(self, file: Path, *, kill_at: str = "", until_caught_up: bool = False) -> None:
        arguments = [sys.executable, "-m", "tidegate.cli.main", "run", str(file), "--verbose"]
        if until_caught_up:
            arguments.append("--until-caught-up")
        environment = {**os.environ, "TIDEGATE_KILL_AT": kill_at}
        self.log = file.with_suffix(f".{time.monotonic_ns()}.log")
        with self.log.open("w") as out:
            self._process = subprocess.Popen(
                arguments, stdout=out, stderr=out, env=environment, start_new_session=True, cwd=file.parent
            )

    def wait_ready(self) -> None:
        """It has claimed, settled, and says so."""
        self._wait(lambda: "ready" in self.log.read_text(), "it is not ready")

    def wait_death(self) -> None:
        """It has died at its kill point."""
        self._wait(lambda: self._process.poll() is not None, "it did not die at its kill point")
        assert self._process.returncode == -signal.SIGKILL, self.log.read_text()
        self.kill()

    def wait_end(self) -> None:
        """It has ended by itself, without an error."""
        self._wait(lambda: self._process.poll() is not None, "it did not end")
        assert self._process.returncode == 0, self.log.read_text()

    def kill(self) -> None:
        """All of its processes are killed: driver, JVM, Python workers."""
        deadline = time.monotonic() + 10
        while alive := _session_members(self._process.pid):
            for process in alive:
                _kill(process)
            self._process.poll()
            assert time.monotonic() < deadline, f"still alive: {alive}"
            time.sleep(0.02)
        self._process.wait()

    def _wait(self, until: object, otherwise: str) -> None:
        deadline = time.monotonic() + START_TIMEOUT_S
        while not until():  # type: ignore[operator]
            if time.monotonic() > deadline:
                self.kill()
                raise AssertionError(f"{otherwise}:\n{self.log.read_text()}")
            time.sleep(0.02)


def _session_members(session: int) -> list[int]:
    processes = [entry for entry in Path("/proc").iterdir() if entry.name.isdigit()]
    return [int(process.name) for process in processes if _session_of(process) == session]


def _session_of(entry: Path) -> int | None:
    try:
        state, _parent, _group, session = (entry / "stat").read_text().rpartition(")")[2].split()[:4]
    except OSError:
        return None
    return None if state == "Z" else int(session)


def _kill(process: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(process, signal.SIGKILL)


Emission = tuple[bytes | None, bytes | None, int, bytes]


def committed(bootstrap: str, topic: str) -> list[list[Emission]]:
    """What a read_committed consumer outside Spark sees, per partition: (key, value, timestamp, cause) in order.

    Checks on the way that (batch, seq) never repeats nor goes back.
    """
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "outside",
            "isolation.level": "read_committed",
            "enable.partition.eof": True,
            "enable.auto.commit": False,
        }
    )
    consumer.assign([TopicPartition(topic, partition, 0) for partition in range(PARTITIONS)])
    seen: list[list[Emission]] = [[] for _ in range(PARTITIONS)]
    newest = [(-1, -1)] * PARTITIONS
    open_partitions = set(range(PARTITIONS))
    while open_partitions:
        message = consumer.poll(10)
        assert message is not None, f"no end of {topic} within 10 s"
        if message.error() is not None:
            open_partitions.discard(message.partition())
            continue
        headers = dict(message.headers())
        place = (int(headers["tidegate-batch"]), int(headers["tidegate-seq"]))
        assert place > newest[message.partition()], f"{place} after {newest[message.partition()]}"
        newest[message.partition()] = place
        seen[message.partition()].append(
            (message.key(), message.value(), message.timestamp()[1], headers["tidegate-cause"])
        )
    consumer.close()
    return seen
