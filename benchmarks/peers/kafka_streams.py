"""The peer of the services' benchmarks: Kafka Streams doing the same work, exactly once, on this machine."""

from __future__ import annotations

import subprocess
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from tidegate.contracts.errors import EngineError
from tidegate.runtime.install.jars import missing, retrieve
from tidegate.runtime.install.java import java_command
from tidegate.runtime.install.paths import home
from tidegate.runtime.kafka.client import KafkaClient
from tidegate.runtime.kafka.offsets import committed_offsets, latest

_HERE = Path(__file__).parent
_JAR_LIST = _HERE / "ivy.xml"
_POLL_S = 0.05
TIMEOUT_S = 900.0


def run_kafka_streams(
    program: str,
    bootstrap: str,
    input_topic: str,
    output_topic: str,
    *more: str,
    threads: int = 2,
    further_inputs: Sequence[str] = (),
) -> float:
    """Return the seconds that Kafka Streams took from ready until all input was processed and all output committed.

    `program`: the name of a program in this folder, which takes `more` as its last arguments. The input is that of
    `input_topic` and of `further_inputs`. The start of the JVM and its threads and the assignment of partitions are not
    counted. The end is when the group's committed offsets reach the ends of the input: they are committed in the same
    transactions as the output. Raise EngineError if it fails.
    """
    client = KafkaClient({"bootstrap.servers": bootstrap})
    ends = {topic: latest(client, topic) for topic in (input_topic, *further_inputs)}
    application = f"peer-{time.monotonic_ns()}"
    try:
        arguments = [bootstrap, application, input_topic, output_topic, str(threads), *more]
        with _running(program, arguments) as process:
            started, deadline = time.monotonic(), time.monotonic() + TIMEOUT_S
            while any(_committed(client, application, topic, list(end)) != end for topic, end in ends.items()):
                _require_running(process, deadline)
                time.sleep(_POLL_S)
            return time.monotonic() - started
    finally:
        client.close()


@contextmanager
def kafka_streams_running(
    program: str, bootstrap: str, input_topic: str, output_topic: str, *more: str, threads: int = 2
) -> Iterator[None]:
    """Run the program on the topics while the block runs, which starts when it processes. See `run_kafka_streams`."""
    arguments = [bootstrap, f"peer-{time.monotonic_ns()}", input_topic, output_topic, str(threads), *more]
    with _running(program, arguments):
        yield


@contextmanager
def _running(program: str, arguments: list[str]) -> Iterator[subprocess.Popen[str]]:
    """Run the program, and yield its process when it is ready."""
    jars = _jars()
    with tempfile.TemporaryDirectory() as scratch, tempfile.TemporaryFile("w+") as complaints:
        java = [java_command(), f"-Djava.io.tmpdir={scratch}", "-cp", f"{jars}/*", str(_HERE / f"{program}.java")]
        process = subprocess.Popen([*java, *arguments], stdout=subprocess.PIPE, stderr=complaints, text=True)
        try:
            assert process.stdout is not None
            if process.stdout.readline().strip() != "RUNNING":
                complaints.seek(0)
                raise EngineError(
                    "Kafka Streams did not start", value=complaints.read()[-2_000:], remedy="see its message"
                )
            yield process
        finally:
            _stop(process)


def _jars() -> Path:
    folder = home() / "peers"
    if missing(folder, _JAR_LIST):
        print("Fetching Kafka Streams", flush=True)
        retrieve(folder, _JAR_LIST)
    return folder / "kafka-streams"


def _committed(client: KafkaClient, group: str, topic: str, partitions: list[int]) -> dict[int, int]:
    found = committed_offsets(client, group, topic, partitions)
    return {partition: mark.offset for partition, mark in found.items() if mark is not None}


def _require_running(process: subprocess.Popen[str], deadline: float) -> None:
    if process.poll() is not None:
        raise EngineError("Kafka Streams ended before its work was done", value=process.returncode)
    if time.monotonic() > deadline:
        raise EngineError("Kafka Streams did not finish in time")


def _stop(process: subprocess.Popen[str]) -> None:
    process.terminate()
    try:
        process.wait(20)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
