"""Kafka's own program that produces `data` and verifies what an exactly-once application made of it."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from confluent_kafka import Consumer, TopicPartition

from tests.oracle.record import HERE as KAFKA_STREAMS
from tidegate.runtime.install.jars import retrieve
from tidegate.runtime.install.java import java_command

_PROGRAM = "org.apache.kafka.streams.tests.StreamsEosTest"
_GROUP = "EosTest"
"""Where the program looks for how far the application has read."""


class Verifier:
    """The program, in a folder with its jars and its settings."""

    def __init__(self, bootstrap: str, folder: Path) -> None:
        """Fetch the jars: of Kafka Streams, and of its tests."""
        self._bootstrap, self._folder = bootstrap, folder
        for jar_list in (KAFKA_STREAMS / "ivy.xml", Path(__file__).with_name("ivy.xml")):
            retrieve(folder / jar_list.parent.name, jar_list)
        self._settings = folder / "verifier.properties"
        self._settings.write_text(
            f"bootstrap.servers={bootstrap}\nprocessing.guarantee=exactly_once_v2\ngroup.protocol=classic\n"
        )

    @contextmanager
    def producing(self) -> Iterator[None]:
        """Produce records to `data` meanwhile, some 200 a second."""
        program = subprocess.Popen(self._command("run"), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        try:
            yield
        finally:
            program.terminate()
            printed, _ = program.communicate(timeout=60)
        assert "Terminated" in printed and "error" not in printed, printed

    def verify(self) -> str:
        """Return what the program prints about the topics `data`, `echo`, `min`, `sum`, `repartition`, `max`, `cnt`.

        It has the records of all of them in memory.
        """
        command = self._command("verify-complex")
        done = subprocess.run(
            command, check=False, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=900
        )
        return done.stdout

    def take_offsets_of(self, readers: Mapping[str, str]) -> None:
        """Commit for the program's group what another group has committed for each topic."""
        for topic, group in readers.items():
            self._commit(self._committed(group, topic))

    def _committed(self, group: str, topic: str) -> list[TopicPartition]:
        consumer = self._consumer(group)
        partitions = consumer.list_topics(topic, timeout=30).topics[topic].partitions
        found = consumer.committed([TopicPartition(topic, partition) for partition in partitions], timeout=30)
        consumer.close()
        assert all(place.offset > 0 for place in found), found
        return [TopicPartition(topic, place.partition, place.offset) for place in found]

    def _commit(self, places: list[TopicPartition]) -> None:
        consumer = self._consumer(_GROUP)
        consumer.commit(offsets=places, asynchronous=False)
        consumer.close()

    def _consumer(self, group: str) -> Consumer:
        return Consumer({"bootstrap.servers": self._bootstrap, "group.id": group, "enable.auto.commit": False})

    def _command(self, what: str) -> list[str]:
        jars = os.pathsep.join(str(jar) for jar in sorted(self._folder.rglob("*.jar")))
        return [java_command(), "-Xmx2g", "-cp", jars, _PROGRAM, str(self._settings), what]
