"""Schemas of writers: from a folder, and from a registry by its HTTP interface."""

from __future__ import annotations

import json
import pickle
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import ClassVar

import numpy as np
import pyarrow as pa
import pytest
from confluent_kafka.schema_registry import SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroDeserializer, AvroSerializer
from confluent_kafka.serialization import MessageField, SerializationContext

from tests.kernels.codecs.protobuf_strategies import in_wire_format, message_class
from tests.pipelines.registry import Handler, served
from tests.pipelines.test_avro_values import FLIGHT, SUPPRESSED, avro, flight
from tests.pipelines.test_rules import pipeline, problems
from tidegate.contracts.errors import InvalidValue, Unavailable, UserError
from tidegate.contracts.flow import Flow
from tidegate.contracts.records import Records, Row
from tidegate.contracts.values import part_of
from tidegate.devkit.embedded_broker import free_ports
from tidegate.kernels.codecs.avro.decoder import AvroDecoder
from tidegate.kernels.codecs.avro.encoder import AvroEncoder
from tidegate.kernels.codecs.avro.schemas import columns_of
from tidegate.kernels.codecs.avro.schemas import read_schema as read_avro
from tidegate.kernels.codecs.protobuf.decoder import ProtobufDecoder
from tidegate.kernels.codecs.protobuf.schemas import columns_of as columns_of_message
from tidegate.kernels.codecs.protobuf.schemas import message_of, read_schema
from tidegate.kernels.codecs.registry_format import SchemaSource
from tidegate.kernels.codecs.schema_sources import source_of
from tidegate.operators.pipeline.building import steps_of

pytestmark = pytest.mark.fast

TEXT = json.dumps(FLIGHT)
LOGIN = "Basic YW5uOnNlY3JldA=="
"""That of ann, whose password is secret."""


class Registry(Handler):
    """The schema of 17, and to nobody but ann that of 20; 21 fails."""

    asked: list[str]
    schemas: ClassVar = {"17": {"schema": TEXT}}

    def do_GET(self) -> None:
        self.asked.append(self.path)
        match self.path.partition("?")[0].removeprefix("/schemas/ids/"):
            case "20" if self.headers.get("Authorization") == LOGIN:
                self.answer(200, {"schema": TEXT})
            case "20":
                self.answer(401, {"error_code": 401, "message": "Unauthorized"})
            case "21":
                self.answer(500, {"error_code": 50001, "message": "Error in the backend"})
            case _:
                super().do_GET()

    def do_POST(self) -> None:
        """Say that the subject has the schema, as version 1."""
        self.rfile.read(int(self.headers["Content-Length"]))
        self.answer(200, {"subject": "departures-value", "id": 17, "version": 1, "schema": TEXT})


@pytest.fixture
def registry() -> Iterator[str]:
    Registry.asked = []
    with served(Registry) as url:
        yield url


def test_a_folder_has_a_file_for_each_schema(tmp_path: Path) -> None:
    (tmp_path / "17.avsc").write_text(TEXT)
    folder = source_of(str(tmp_path))
    assert (folder.schema(17), folder.schema(18)) == (TEXT, None)


WIND = 'syntax = "proto3"; package weather; import "units/speed.proto"; message Wind { Speed gust = 1; }'
SPEED = 'syntax = "proto3"; package weather; message Speed { double knots = 1; }'
IMPORTING = 'syntax = "proto3"; package weather; import "wind.proto"; message Report { Wind wind = 1; }'
INLINED = """syntax = "proto3"; package weather; message Speed { double knots = 1; } message Wind { Speed gust = 1; }
message Report { Wind wind = 1; }"""


class Referring(Handler):
    """The schema of 5, which refers to one that refers to another."""

    schemas: ClassVar = {
        "5": {
            "schema": IMPORTING,
            "schemaType": "PROTOBUF",
            "references": [{"name": "wind.proto", "subject": "wind", "version": 2}],
        }
    }
    versions: ClassVar = {
        "/subjects/wind/versions/2": {
            "schema": WIND,
            "references": [{"name": "units/speed.proto", "subject": "speed", "version": 1}],
        },
        "/subjects/speed/versions/1": {"schema": SPEED},
    }

    def do_GET(self) -> None:
        path = self.path.partition("?")[0]
        if path in self.versions:
            subject, version = path.split("/")[2], int(path.split("/")[4])
            found = {"subject": subject, "version": version, "id": 90 + version, "schemaType": "PROTOBUF"}
            self.answer(200, found | self.versions[path])
        else:
            super().do_GET()


def knots(source: SchemaSource) -> list[object]:
    """What a reader whose schema is one file reads of a value of schema 5."""
    body = message_class(INLINED, "weather.Report")(wind={"gust": {"knots": 7.5}}).SerializeToString()
    value = np.frombuffer(in_wire_format(body, 5, b"\0"), np.uint8)
    wind = part_of(columns_of_message(message_of(read_schema(INLINED), "weather.Report")), [("wind",)])
    reader = ProtobufDecoder(INLINED, "weather.Report", wind, source)
    decoded = reader.columns(value, np.array([0]), np.array([len(value)]))
    return [decoded.columns[0].to_pylist(), decoded.causes(np.flatnonzero(decoded.code))]


def test_schemas_of_protobuf_may_import_references_of_a_registry_and_files_of_a_folder(tmp_path: Path) -> None:
    read = [[{"gust": {"knots": 7.5}}], []]
    with served(Referring) as url:
        assert knots(source_of(url)) == read
    (tmp_path / "5.proto").write_text(IMPORTING)
    (tmp_path / "wind.proto").write_text(WIND)
    folder = source_of(str(tmp_path), ".proto")
    nothing, [cause] = knots(folder)
    assert nothing == [None]
    assert cause.startswith("value: schema 5 cannot be read: not a schema of Protobuf: ") and "wind.proto" in cause
    (tmp_path / "units").mkdir()
    (tmp_path / "units" / "speed.proto").write_text(SPEED)
    assert knots(folder) == read


REPORT = '{"type": "record", "name": "Report", "namespace": "x", "fields": [{"name": "wind", "type": "Wind"}]}'
GUST = '{"type": "record", "name": "Wind", "namespace": "x", "fields": [{"name": "gust", "type": "x.units.Speed"}]}'
KNOTS = '{"type": "record", "name": "x.units.Speed", "fields": [{"name": "knots", "type": "double"}]}'


class ReferringAvro(Referring):
    """The schema of 6, which refers to one that refers to another."""

    schemas: ClassVar = {"6": {"schema": REPORT, "references": [{"name": "x.Wind", "subject": "wind", "version": 2}]}}
    versions: ClassVar = {
        "/subjects/wind/versions/2": {
            "schema": GUST,
            "schemaType": "AVRO",
            "references": [{"name": "x.units.Speed", "subject": "speed", "version": 1}],
        },
        "/subjects/speed/versions/1": {"schema": KNOTS, "schemaType": "AVRO"},
    }


def gust(source: SchemaSource) -> list[object]:
    """What a reader whose schema is one file reads of a value of schema 6."""
    inlined = REPORT.replace('"Wind"', GUST.replace('"x.units.Speed"', KNOTS))
    value = np.frombuffer(b"\0\0\0\0\6" + np.float64(7.5).tobytes(), np.uint8)
    reader = AvroDecoder(inlined, columns_of(read_avro(inlined)), source)
    decoded = reader.columns(value, np.array([0]), np.array([len(value)]))
    return [decoded.columns[0].to_pylist(), decoded.causes(np.flatnonzero(decoded.code))]


def test_schemas_of_avro_may_refer_to_references_of_a_registry_and_to_files_of_a_folder(tmp_path: Path) -> None:
    read = [[{"gust": {"knots": 7.5}}], []]
    with served(ReferringAvro) as url:
        assert gust(source_of(url)) == read
    (tmp_path / "6.avsc").write_text(REPORT)
    (tmp_path / "wind.avsc").write_text(GUST)
    folder = source_of(str(tmp_path))
    lacking = "value: schema 6 cannot be read: not a schema of Avro: type x.units.Speed is not defined"
    assert gust(folder) == [[None], [lacking]]
    (tmp_path / "units").mkdir()
    (tmp_path / "units" / "speed.avsc").write_text(KNOTS)
    assert gust(folder) == read
    (tmp_path / "units" / "speed.avsc").write_bytes(b"\xff")
    with pytest.raises(Unavailable, match="a schema cannot be read"):
        gust(folder)


def test_a_schema_that_is_read_alone_needs_no_file_beside_it(tmp_path: Path) -> None:
    (tmp_path / "17.avsc").write_text(TEXT)
    (tmp_path / "flight.avsc").write_text(TEXT)  # defines the same type
    (tmp_path / "other.avsc").write_bytes(b"\xff")
    reader = AvroDecoder(TEXT, columns_of(read_avro(TEXT)), source_of(str(tmp_path)))
    value = flight()
    decoded = reader.columns(np.frombuffer(value, np.uint8), np.array([0]), np.array([len(value)]))
    assert not decoded.code.any()


@pytest.mark.parametrize("name", ["schema.proto", "schema_.proto", "found", "found/x.proto", "files/x.proto"])
def test_what_a_schema_imports_may_have_any_name(name: str) -> None:
    text = f'syntax = "proto3"; import "{name}"; message Report {{ weather.Speed gust = 1; }}'
    found = read_schema(text, (("schema_.proto", SPEED.replace("Speed", "Other")), (name, SPEED)))
    [gust] = message_of(found, "Report").fields
    assert gust.message_type.full_name == "weather.Speed"
    with pytest.raises(InvalidValue, match=r"^not a schema of Protobuf: 1:"):
        read_schema(f"{text} message", ((name, SPEED),))


def test_a_schema_imports_nothing_from_outside_and_no_folder() -> None:
    for name in ("../x.proto", "/tmp/x.proto", ".", "x.proto/y.proto"):
        with pytest.raises(InvalidValue, match="it would import"):
            read_schema(INLINED, (("x.proto", SPEED), (name, SPEED)))


def test_a_registry_is_asked_for_each_schema_and_an_unknown_one_is_none(registry: str) -> None:
    source = source_of(registry)
    assert [source.schema(17), source.schema(17), source.schema(18)] == [TEXT, TEXT, None]
    assert len([path for path in Registry.asked if path.startswith("/schemas/ids/17")]) == 1


def test_a_pipeline_reads_values_by_the_schemas_of_a_registry(registry: str) -> None:
    value = {"avro": {"schema": FLIGHT, "schemas": registry}}
    [first, *_] = steps_of(pipeline({"filter": "delay > 15"}, SUPPRESSED, value=value))
    assert first.function is not None
    rows = [Row(b"k", each, 1, at) for at, each in enumerate([flight(), flight(delay=3), flight(18)])]
    sifted = first.function(Flow.of_input(Records.from_rows(rows)))
    assert (sifted.filtered, sifted.causes) == (1, ("value: schema 18 is unknown",))


def test_a_login_is_read_from_a_file_and_is_no_part_of_the_configuration(registry: str, tmp_path: Path) -> None:
    file = tmp_path / "registry.properties"
    file.write_text(f"# the registry\nurl = {registry}\nbasic.auth.user.info=ann:secret\n")
    assert source_of(str(file)).schema(20) == TEXT
    config = pipeline({"filter": "delay > 15"}, SUPPRESSED, value={"avro": {"schema": FLIGHT, "schemas": str(file)}})
    assert b"secret" not in pickle.dumps(config) and "secret" not in config.model_dump_json() + repr(config)


def test_a_refused_login_names_the_remedy_and_no_password(registry: str, tmp_path: Path) -> None:
    file = tmp_path / "registry.properties"
    file.write_text(f"url={registry}\nbasic.auth.user.info=bob:hidden\n")
    with pytest.raises(UserError, match="refuses the login") as refused:
        source_of(str(file)).schema(20)
    assert str(file) in str(refused.value) and "hidden" not in str(refused.value)


def test_options_that_cannot_be_read_are_a_problem_with_its_remedy(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="options of the registry cannot be read"):
        source_of(str(tmp_path / "registry.properties")).schema(17)
    (tmp_path / "registry.properties").write_text("basic.auth.user.info=ann:secret\n")
    with pytest.raises(UserError, match="client cannot be made") as refused:
        source_of(str(tmp_path / "registry.properties")).schema(17)
    assert "secret" not in str(refused.value)


def test_a_registry_that_fails_or_cannot_be_reached_is_waited_for(registry: str) -> None:
    with pytest.raises(Unavailable, match="status 500"):
        source_of(registry).schema(21)
    [port] = free_ports(1)
    with pytest.raises(Unavailable, match="ConnectError"):
        source_of(f"http://127.0.0.1:{port}").schema(17)


def test_a_url_with_a_login_is_refused(tmp_path: Path) -> None:
    found = problems(SUPPRESSED, value=avro(tmp_path) | {"avro": {"schema": FLIGHT, "schemas": "http://a:b@host"}})
    assert found == {"value": "the URL has a login, which logs would show"}


def test_the_registry_s_own_serializers_write_what_is_read_and_read_what_is_written(registry: str) -> None:
    """Those of librdkafka's Python client."""
    client = SchemaRegistryClient({"url": registry})
    context = SerializationContext("departures", MessageField.VALUE)
    options = {"auto.register.schemas": False, "use.schema.id": 17}
    flown = {"carrier": "UA", "delay": 20, "scheduled": datetime(2013, 1, 1, tzinfo=UTC), "weather": {"gust": 41.5}}
    value = AvroSerializer(client, None, conf=options)(flown, context)
    columns = AvroDecoder(TEXT, columns_of(read_avro(TEXT)), source_of(registry))
    decoded = columns.columns(np.frombuffer(value, np.uint8), np.zeros(1, np.int64), np.array([len(value)]))
    [row] = pa.table(decoded.columns, columns.schema).to_pylist()
    assert row == flown | {"scheduled": datetime(2013, 1, 1)}
    [written] = AvroEncoder(columns.schema, TEXT, 17).encode(pa.RecordBatch.from_pylist([row], columns.schema)).values
    assert AvroDeserializer(client)(written.as_py(), context) == flown
