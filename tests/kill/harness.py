"""The input, the configuration of the operator, and what any consumer reads of its output."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator, Sequence
from functools import reduce
from itertools import pairwise
from pathlib import Path
from threading import Event, Thread
from typing import Any

import yaml
from confluent_kafka import Consumer, Producer, TopicPartition

from tests.lakes import actions, named
from tidegate.contracts.batch_metadata import BatchMeta, after_document, is_complete
from tidegate.state.lake.place import Place

PARTITIONS = 4
OPERATOR = "updates"
STEPS = 40
Record = tuple[int, bytes, bytes, int]
"""(partition, key, value, timestamp)."""
Emission = tuple[bytes | None, bytes | None, int, bytes]
"""(key, value, timestamp, cause)."""


def records(count: int) -> list[Record]:
    """The records of `flow` in a list."""
    return list(flow(count))


def flow(count: int, keys: int = 500, seed: int = 7) -> Iterator[Record]:
    """Timestamps up to 5 s out of order, a key always in one partition."""
    rng = random.Random(seed)
    for i in range(count):
        key = rng.randrange(keys)
        timestamp = 1_700_000_000_000 + i * 10 - rng.randrange(5_000)
        yield key % PARTITIONS, b"k%04d" % key, b'{"n":%d}' % i, timestamp


def split(made: Sequence[Record], parts: int) -> list[Sequence[Record]]:
    """The records in so many parts of about the same length."""
    bounds = [len(made) * part // parts for part in range(parts + 1)]
    return [made[start:end] for start, end in pairwise(bounds)]


class Feed:
    """Produces records with librdkafka, in steps, on a thread of its own."""

    def __init__(self, bootstrap: str, topic: str) -> None:
        self._topic = topic
        self._producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 5, "enable.idempotence": True})
        self._hurry = Event()
        self._thread = Thread()

    def start(self, part: Sequence[Record], seconds: float) -> None:
        """The part is being produced, spread over the seconds; the one before is produced."""
        self.finish()
        self._hurry.clear()
        self._thread = Thread(target=self._feed, args=(part, seconds))
        self._thread.start()

    def finish(self) -> None:
        """What was started is produced, from now on without pauses."""
        self._hurry.set()
        if self._thread.ident is not None:
            self._thread.join()

    def _feed(self, part: Sequence[Record], seconds: float) -> None:
        for step in split(part, STEPS):
            for partition, key, value, timestamp in step:
                self._producer.produce(self._topic, value, key, partition, timestamp=timestamp)
            self._producer.flush()
            self._hurry.wait(seconds / STEPS)


SUPPRESSION = {
    "kind": "suppression",
    "until": {"time_limit": "5s"},
    "buffer": {"max_keys": 100, "when_full": "emit"},
}
LATE = {"max_lateness": "3s"}
"""What makes a part of the records late."""
TABLE = {"kind": "table_history", "history_retention": "3s"}
"""Without emissions, and with late records."""
WINDOWS = {
    "kind": "windowed_aggregation",
    "window": {"hopping": "4s", "advance": "2s", "grace": "5s"},
    "aggregate": {"count": True},
    "emit": "final",
}


def configure(
    file: Path,
    bootstrap: str,
    source: str,
    output: str | None,
    described: dict[str, Any] = SUPPRESSION,
    lake: Place | None = None,
    **changed: object,
) -> Path:
    """The file describes one operator; its name up to a `-` is the application's.

    Without a `lake`, the lake is a folder beside the file.

    Files of one application describe the same operator, at different times (`changed`: `state`, `trigger`, or what the
    operator takes).
    """
    application = file.stem.partition("-")[0]
    operator = {**described, "input": source, "output": output}
    place = lake or Place.of(f"./{application}/lake")
    content = application_content(application, bootstrap, place, f"./{application}/state")
    content.update({name: changed.pop(name) for name in content.keys() & changed.keys()})
    file.write_text(yaml.safe_dump({**content, "operators": {OPERATOR: {**operator, **changed}}}))
    return file


def application_content(name: str, bootstrap: str, lake: Place, state: str) -> dict[str, Any]:
    """What the file of an application says, without its operators."""
    return {
        "application": name,
        **named(lake),
        "state": state,
        "keep_output": "forever",
        "kafka": {"bootstrap.servers": bootstrap},
        "spark": {"master": "local[2]"},
        "trigger": "50ms",
        "takeover_after": "6s",
    }


def committed(bootstrap: str, topic: str) -> list[list[Emission]]:
    """What a read_committed consumer outside Spark sees, per partition, in order."""
    seen: list[list[Emission]] = [[] for _ in range(PARTITIONS)]
    for partition, emission in published(bootstrap, topic):
        seen[partition].append(emission)
    return seen


def published(bootstrap: str, topic: str) -> Iterator[tuple[int, Emission]]:
    """What a read_committed consumer outside Spark sees, with the partition of each; partitions come in any order.

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
    newest = [(-1, -1)] * PARTITIONS
    open_partitions = set(range(PARTITIONS))
    while open_partitions:
        message = consumer.poll(30)
        assert message is not None, f"no end of {topic} within 30 s"
        if message.error() is not None:
            open_partitions.discard(message.partition())
            continue
        headers = dict(message.headers())
        place = (int(headers["tidegate-batch"]), int(headers["tidegate-seq"]))
        assert place > newest[message.partition()], f"{place} after {newest[message.partition()]}"
        newest[message.partition()] = place
        cause = headers["tidegate-cause"]
        yield message.partition(), (message.key(), message.value(), message.timestamp()[1], cause)
    consumer.close()


def newest(lake: Place) -> BatchMeta:
    """What is known after the newest commit to the operator's log, of all partitions."""
    documents = commits(lake)
    complete = max(at for at, document in enumerate(documents) if is_complete(document))
    return reduce(after_document, documents[complete:], None)  # type: ignore[arg-type, return-value]


def commits(lake: Place) -> list[dict[str, Any]]:
    """What every commit to the operator's log says of itself, in order: its epoch, its batch, what it changed."""
    said = [action["commitInfo"] for action in actions(lake / OPERATOR) if "commitInfo" in action]
    return [json.loads(info["tidegate"]) for info in said if "tidegate" in info]
