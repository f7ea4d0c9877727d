"""docs/how-to/protobuf.md: its program reads Avro and Protobuf by a registry, and Confluent's client its results.

The registry has the page's schemas as 1, 2 and 3. While the program runs, producers come with a schema that is
compatible (4: a flight with a gate) and with others that are not (5: a flight whose delay is text, 6: a report whose
gust is text).
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, ClassVar

import pytest
from confluent_kafka.schema_registry import SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroDeserializer
from confluent_kafka.serialization import MessageField, SerializationContext

from tests.docs.pages import DOCS, blocks
from tests.kernels.codecs.avro_strategies import written
from tests.kernels.codecs.protobuf_strategies import in_wire_format, message_class
from tests.patience import PATIENCE_S
from tests.pipelines.registry import Handler, served
from tidegate.application.loading import load_application
from tidegate.devkit.produce_consume import read_all, write_all
from tidegate.runtime.kafka.topics import create_topic

pytestmark = [pytest.mark.broker, pytest.mark.spark]

TEXTS = {block.language: block.text for block in blocks(DOCS / "how-to" / "protobuf.md")}
FLIGHT, HOUR = (block.text for block in blocks(DOCS / "how-to" / "protobuf.md") if block.language == "json")
REPORT = TEXTS["proto"]
NEWER = json.loads(FLIGHT) | {"fields": [*json.loads(FLIGHT)["fields"], {"name": "gate", "type": "string"}]}
WRONG = json.loads(FLIGHT.replace('"int"', '"string"'))
CHANGED = REPORT.replace("double gust", "string gust")
MINUTE = 60_000


class Registry(Handler):
    schemas: ClassVar = {
        "1": {"schema": FLIGHT},
        "2": {"schema": REPORT, "schemaType": "PROTOBUF"},
        "3": {"schema": HOUR},
        "4": {"schema": json.dumps(NEWER)},
        "5": {"schema": json.dumps(WRONG)},
        "6": {"schema": CHANGED, "schemaType": "PROTOBUF"},
    }


def report(gust: Any, number: int = 2, schema: str = REPORT) -> bytes:
    """A report, which is the second message of its schema."""
    value = message_class(schema, "weather.Report")(wind={"gust": gust})
    return in_wire_format(value.SerializeToString(), number, b"\2\2")


def flight(delay: Any, number: int = 1, schema: Any = None, **more: str) -> bytes:
    return written(schema or json.loads(FLIGHT), {"carrier": "UA", "delay": delay, **more}, number)


def put(kafka: dict[str, str], topic: str, *made: tuple[int, bytes]) -> None:
    """The values, each at a minute, stand in the topic."""
    write_all(kafka, topic, [(0, b"JFK", value, minute * MINUTE) for minute, value in made])


def test_the_program_reads_avro_and_protobuf_and_goes_on_through_new_schemas(
    kafka: dict[str, str], spark: Any, tmp_path: Path
) -> None:
    """An hour is over when a flight comes five minutes after its end: those of a join wait for so long."""
    create_topic(kafka, "windy-hours", 1)
    (tmp_path / "report.proto").write_text(REPORT)
    (tmp_path / "flight.avsc").write_text(FLIGHT)
    (tmp_path / "hour.avsc").write_text(HOUR)
    put(kafka, "weather", (0, report(50.5)), (30, report(60.5)), (45, report(20.0)), (400, report(0.0)))
    put(kafka, "departures", (10, flight(7)), (35, flight(9)), (50, flight(99)), (80, flight(1)))
    with served(Registry) as registry:
        (tmp_path / "app.py").write_text(TEXTS["python"].replace("http://127.0.0.1:8081", registry))
        with load_application(tmp_path / "app.py:app").start() as running:
            running.await_caught_up(f"{PATIENCE_S}s")
            put(kafka, "weather", (410, report(70.5)), (420, report("70", 6, CHANGED)), (500, report(0.0)))
            changed = (412, flight(30, 4, NEWER, gate="B7")), (413, flight("30", 5, WRONG)), (425, flight(31))
            put(kafka, "departures", *changed, (600, flight(1)), (900, flight(1)))
            running.await_caught_up(f"{PATIENCE_S}s")
            causes = [row["cause"] for row in running.sql("SELECT cause FROM windy_rejected ORDER BY event_time")]
        client, context = SchemaRegistryClient({"url": registry}), SerializationContext("hours", MessageField.VALUE)
        results = [AvroDeserializer(client)(value, context) for _, value, _ in read_all(kafka, "windy-hours")[0]]
    assert results == [{"delay": 9, "gust": 60.5}, {"delay": 30, "gust": 70.5}]
    assert causes == [
        "value: schema 5 has what the reader's schema lacks",
        "table: schema 6 cannot be read: field gust (1) is string, and is read as double",
    ]
