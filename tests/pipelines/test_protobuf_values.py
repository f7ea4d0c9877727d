"""Protobuf values in pipelines: what steps read of them, how they are joined, and what becomes of those that fail."""

from __future__ import annotations

import json
from base64 import b64encode
from pathlib import Path
from typing import Any

import pytest

import tidegate as tg
from tests.kernels.codecs.protobuf_strategies import in_wire_format, message_class
from tests.pipelines.test_avro_values import COUNTS, FLIGHT, SUPPRESSED, avro, counted, flight, values_of
from tests.pipelines.test_rules import pipeline, problems
from tidegate.contracts.flow import Flow, Sifted
from tidegate.contracts.records import Records, Row
from tidegate.operators.pipeline.building import steps_of
from tidegate.operators.pipeline.rules.steps import steps_as_written

pytestmark = pytest.mark.fast

REPORT = """
syntax = "proto3";
package weather;
message Wind { double gust = 1; }
message Report { Wind wind = 1; optional int32 visibility = 2; int64 observed = 3; }
"""
STATION = 'syntax = "proto3"; package weather; message Wind { double gust = 1; } message Station { string name = 1; }'
CHANGED = REPORT.replace("optional int32 visibility", "string visibility")


def protobuf(folder: Path, **changed: str) -> dict[str, Any]:
    return {"protobuf": {"schema": REPORT, "message": "weather.Report", "schemas": str(folder)} | changed}


def report(number: int = 5, path: bytes = b"\2\2", schema: str = REPORT, **fields: Any) -> bytes:
    """A report, which is the second message of its schema."""
    return in_wire_format(message_class(schema, "weather.Report")(**fields).SerializeToString(), number, path)


WINDY, CALM = report(wind={"gust": 41.5}, visibility=9, observed=7), report(wind={"gust": 3.0})


def sift(folder: Path, value: Any, *steps: dict[str, Any], values: list[bytes | None]) -> Sifted:
    """What the first stateless step makes of the values, where the folder has the schemas of 5, 6 and 7."""
    for number, text in {5: REPORT, 6: STATION, 7: CHANGED}.items():
        (folder / f"{number}.proto").write_text(text)
    (folder / "17.avsc").write_text(json.dumps(FLIGHT))
    found = next(each for each in steps_of(pipeline(*steps, value=value)) if each.function is not None)
    assert found.function is not None
    return found.function(Flow.of_input(Records.from_rows(Row(b"k", each, 1, at) for at, each in enumerate(values))))


def test_a_filter_reads_fields_of_messages_and_an_untouched_value_leaves_byte_for_byte(tmp_path: Path) -> None:
    steps = {"filter": "wind.gust > 40 and visibility = 9"}, SUPPRESSED
    sifted = sift(tmp_path, protobuf(tmp_path), *steps, values=[WINDY, CALM, report()])
    assert (values_of(sifted), sifted.filtered) == ([WINDY], 2)


def test_values_that_cannot_be_read_are_rejected_with_their_schema(tmp_path: Path) -> None:
    wrong = [WINDY[:-1], report(8), report(6), report(7), report(5, b"\2\6"), b"{}", b"\0\0\0\0\5\3", None]
    sifted = sift(tmp_path, protobuf(tmp_path), {"filter": "visibility = 9"}, SUPPRESSED, values=[WINDY, *wrong])
    assert values_of(sifted) == [WINDY]
    assert dict(zip(sifted.rejected.tolist(), sifted.causes, strict=True)) == {
        1: "value: not Protobuf of schema 5",
        2: "value: schema 8 is unknown",
        3: "value: schema 6 has weather.Station, not weather.Report",
        4: "value: schema 7 cannot be read: field visibility (2) is string, and is read as int32",
        5: "value: schema 5 has no message there, not weather.Report",
        6: "value: names no schema",
        7: "value: names no message of its schema",
        8: "value: null",
    }


def test_a_field_that_nobody_reads_may_have_another_type(tmp_path: Path) -> None:
    value = report(7, schema=CHANGED, wind={"gust": 50.0}, visibility="far")
    assert values_of(sift(tmp_path, protobuf(tmp_path), {"filter": "wind.gust > 40"}, SUPPRESSED, values=[value])) == [
        value
    ]


def test_a_description_that_is_wrong_is_a_problem(tmp_path: Path) -> None:
    for wrong, cause in (
        ({"protobuf": {"schema": REPORT}}, "not a description of Protobuf values"),
        (protobuf(tmp_path, schemas="here"), "the folder of the schemas is not absolute"),
        (protobuf(tmp_path, schemas="http://a:b@host"), "the URL has a login"),
        (protobuf(tmp_path, message="Report"), "the schema has no message Report"),
        (protobuf(tmp_path, schema="message"), "not a schema of Protobuf: 1:8: Expected message name"),
    ):
        [(where, found)] = problems(SUPPRESSED, value=wrong).items()
        assert (where, found.startswith(cause)) == ("value", True), found


# ---- aggregates of fields


def test_aggregates_read_fields_without_a_step_before_them(tmp_path: Path) -> None:
    """Only the fields that they read become JSON, and the timestamp's."""
    summed = {**COUNTS, "aggregate": {"max": {"path": "wind.gust"}}}
    timestamp = {"field": "observed"}
    config = pipeline(summed, value=protobuf(tmp_path), timestamp=timestamp)
    [select, written] = steps_as_written(config.steps)
    assert select == {"select": {"wind": '"wind"', "observed": '"observed"'}}
    assert pipeline(select, written, value=protobuf(tmp_path), timestamp=timestamp) == config
    sifted = sift(tmp_path, protobuf(tmp_path), summed, values=[WINDY, CALM[:-1]])
    assert values_of(sifted) == [b'{"wind":{"gust":41.5}}']
    assert sifted.causes == ("value: not Protobuf of schema 5",)


def test_the_added_step_reads_the_step_that_the_operator_names(tmp_path: Path) -> None:
    summed = {**COUNTS, "from": "input", "aggregate": {"sum": {"field": "visibility"}}}
    config = pipeline(
        {"name": "few", "filter": "visibility = 1"}, {**SUPPRESSED, "from": "few"}, summed, value=protobuf(tmp_path)
    )
    [*_, select, written] = steps_as_written(config.steps)
    assert (select["from"], "from" in written) == ("input", False)


# ---- joins


JOIN = {"name": "joined", "kind": "stream_table_join", "table": "reports", "join": "left"}


def joined(stream: bytes | None, table: bytes | None) -> bytes:
    """The value of a join, as the join writes it."""
    parts = {
        f"{side}_bytes" if value else side: b64encode(value).decode() if value else None
        for side, value in (("stream", stream), ("table", table))
    }
    return json.dumps(parts, separators=(",", ":")).encode()


def test_a_join_of_avro_and_protobuf_is_read_by_its_fields(tmp_path: Path) -> None:
    join = {**JOIN, "table_value": protobuf(tmp_path)}
    select = {"select": {"delay": "delay", "gust": "reports.wind.gust"}}
    values = [joined(flight(), WINDY), joined(flight(delay=2), None)]
    sifted = sift(tmp_path, avro(tmp_path), join, select, values=values)
    assert values_of(sifted) == [b'{"delay":20,"gust":41.5}', b'{"delay":2,"gust":null}']


def test_a_row_with_a_side_that_cannot_be_read_is_rejected_with_its_schema(tmp_path: Path) -> None:
    join = {**JOIN, "table_value": protobuf(tmp_path)}
    plain = json.dumps({"stream_bytes": b64encode(flight()).decode(), "table": {}}).encode()
    values = [joined(flight(), report(7)), joined(flight(18), WINDY), plain, joined(None, WINDY)]
    sifted = sift(tmp_path, avro(tmp_path), join, {"filter": "delay > reports.visibility"}, values=values)
    assert sifted.causes == (
        "table: schema 7 cannot be read: field visibility (2) is string, and is read as int32",
        "value: schema 18 is unknown",
        "table: names no schema",
        "value: null",
    )


def test_one_side_may_be_json(tmp_path: Path) -> None:
    join, only_json = {**JOIN, "table_value": protobuf(tmp_path)}, {"json": {"delay": "int64"}}
    half = json.dumps({"stream": {"delay": 20}, "table_bytes": b64encode(WINDY).decode()}).encode()
    select = {"select": {"sum": "delay + reports.wind.gust"}}
    assert values_of(sift(tmp_path, only_json, join, select, values=[half])) == [b'{"sum":61.5}']
    other = {**JOIN, "emits": {"gust": "float64"}}
    half = json.dumps({"stream_bytes": b64encode(flight()).decode(), "table": {"gust": 1.5}}).encode()
    select = {"select": {"sum": "delay + reports.gust"}}
    assert values_of(sift(tmp_path, avro(tmp_path), other, select, values=[half])) == [b'{"sum":21.5}']


def test_aggregates_of_a_join_read_fields_of_both_sides(tmp_path: Path) -> None:
    join = {**JOIN, "table_value": protobuf(tmp_path)}
    summed = {**COUNTS, "aggregate": {"sum": {"field": "delay"}, "max": {"path": "reports.wind.gust"}}}
    sifted = sift(tmp_path, avro(tmp_path), join, summed, values=[joined(flight(), WINDY)])
    assert json.loads(values_of(sifted)[0] or b"") == {
        "delay": 20,
        "reports": {"wind": {"gust": 41.5}, "visibility": 9, "observed": 7},
    }


def test_a_type_of_a_table_s_values_that_has_no_place_is_a_problem(tmp_path: Path) -> None:
    typed, value = {"table_value": protobuf(tmp_path)}, {"json": {"delay": "int64"}}
    assert problems({**SUPPRESSED, **typed}, value=value) == {"steps.0": "the step makes no values of those of a table"}
    twice = {**JOIN, **typed, "emits": {"gust": "float64"}}
    assert problems(twice, value=value) == {"steps.0": "the fields of the table's values are given twice"}
    [unknown] = problems({**JOIN, **typed}).values()
    assert unknown.startswith("the fields of the stream's values are unknown")
    [json_type] = problems({**JOIN, "table_value": {"json": {"gust": "float64"}}}, value=value).values()
    assert json_type.startswith("not a format of values with schemas")


def test_a_program_names_the_schema_by_its_file_or_its_text(tmp_path: Path) -> None:
    file = tmp_path / "report.proto"
    file.write_text(REPORT)
    app, other = (tg.Application("flights", kafka="localhost:1", lake=tmp_path, keep_output="1d") for _ in range(2))
    for each, schema in ((app, REPORT), (other, file)):
        form = tg.protobuf("weather.Report", schema=schema, schemas=tmp_path)
        reports = each.table("reports", value=form, history="1d")
        flights = each.stream("departures", name="late", value=tg.avro(schema=FLIGHT, schemas=tmp_path))
        flights.join(reports, how="left", grace="1h").filter("reports.wind.gust > 40").to("late-departures")
        each.stream("reports", name="gusts", value=form).window(tg.tumbling("1h", grace=0)).aggregate(
            tg.max("wind.gust")
        ).to("gusts")
    assert app == other
    assert tg.Application.from_yaml(app.to_yaml()) == app


HOURS = 'syntax = "proto3"; package weather; message Hour { int64 n = 1; optional double worst = 2; }'
COUNTED = {**COUNTS, "aggregate": {"count": True}}
WRITTEN: dict[str, Any] = {"schema": HOURS, "message": "weather.Hour", "number": 9}


def test_results_are_written_as_messages_and_what_does_not_fit_is_rejected() -> None:
    steps = [COUNTED, {"select": {"n": "count", "worst": "count * 0.5::double"}}, {"encode": {"protobuf": WRITTEN}}]
    config = pipeline(*steps)
    assert steps_as_written(config.steps)[-1] == {"encode": {"protobuf": WRITTEN}}
    *_, last = steps_of(config)
    assert last.function is not None
    sifted = last.function(counted(b'{"n":2,"worst":1.0}', b'{"n":null,"worst":1.0}', b'{"n":0,"worst":null}'))
    made = message_class(HOURS, "weather.Hour")
    expected = [in_wire_format(made(**row).SerializeToString(), 9) for row in ({"n": 2, "worst": 1.0}, {})]
    assert values_of(sifted) == expected
    assert (sifted.rejected.tolist(), list(sifted.causes)) == ([1], ["its n does not fit the schema"])


@pytest.mark.parametrize(
    ("changed", "cause"),
    [
        ({"number": -1}, "the number of the schema is no number of a registry"),
        ({"message": "weather.Day"}, "the schema has no message weather.Day"),
        ({"schema": "message"}, "not a schema of Protobuf"),
        ({"schema": {}}, "not a description of Protobuf values"),
        ({"schemas": "x"}, "not a format of values"),
    ],
)
def test_a_description_of_results_that_is_wrong_is_a_problem(changed: dict[str, Any], cause: str) -> None:
    [found] = problems(COUNTED, {"select": {"n": "count"}}, {"encode": {"protobuf": {**WRITTEN, **changed}}}).values()
    assert cause in found


def test_a_program_writes_protobuf(tmp_path: Path) -> None:
    (tmp_path / "hour.proto").write_text(HOURS)
    app = tg.Application("flights", kafka="localhost:1", lake=tmp_path, keep_output="1d")
    form = tg.protobuf("weather.Hour", schema=tmp_path / "hour.proto", number=9)
    app.stream("a", name="a").window(tg.tumbling("1h", grace=0)).count().select(n="count").to("b", value=form)
    assert "number: 9" in app.to_yaml()
    assert tg.Application.from_yaml(app.to_yaml()) == app


def test_keys_of_protobuf_are_read_by_their_fields(tmp_path: Path) -> None:
    (tmp_path / "5.proto").write_text(REPORT)
    [first, *_] = steps_of(pipeline({"filter": "key.wind.gust > 40"}, SUPPRESSED, key=protobuf(tmp_path)))
    assert first.function is not None
    keys = [WINDY, CALM, WINDY[:-1], None]
    sifted = first.function(Flow.of_input(Records.from_rows(Row(key, b"v", 1, at) for at, key in enumerate(keys))))
    assert [row.key for row in sifted.flow.rows.rows() if not row.time_only] == [WINDY]
    assert (sifted.rejected.tolist(), sifted.causes) == ([2], ("key: not Protobuf of schema 5",))
