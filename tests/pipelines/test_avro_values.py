"""Avro values in pipelines: what steps read of them, and what becomes of those that cannot be read."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tidegate as tg
from tests.docs.pages import DOCS, blocks
from tests.kernels.codecs.avro_strategies import read_by_oracle, written
from tests.pipelines.test_rules import pipeline, problems
from tidegate.application.loading import load_application
from tidegate.contracts.errors import Unavailable
from tidegate.contracts.flow import Flow, Sifted
from tidegate.contracts.records import Records, Row
from tidegate.operators.pipeline.building import steps_of
from tidegate.operators.pipeline.config import PipelineConfig

pytestmark = pytest.mark.fast

WEATHER = {"type": "record", "name": "Weather", "fields": [{"name": "gust", "type": "double"}]}
FLIGHT: dict[str, Any] = {
    "type": "record",
    "name": "Flight",
    "fields": [
        {"name": "carrier", "type": "string"},
        {"name": "delay", "type": ["null", "int"], "default": None},
        {"name": "scheduled", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        {"name": "weather", "type": ["null", WEATHER], "default": None},
    ],
}
SUPPRESSED = {"name": "held", "kind": "suppression", "until": {"time_limit": "1s"}}


def avro(folder: Path, schema: dict[str, Any] = FLIGHT) -> dict[str, Any]:
    return {"avro": {"schema": schema, "schemas": str(folder)}}


def flight(number: int = 17, schema: dict[str, Any] = FLIGHT, **fields: Any) -> bytes:
    return written(schema, {"carrier": "UA", "delay": 20, "scheduled": 5, "weather": {"gust": 41.5}} | fields, number)


def sift(folder: Path, step: dict[str, Any], *values: bytes | None) -> Sifted:
    """What the first step makes of the values, where the folder has the schema of number 17."""
    (folder / "17.avsc").write_text(json.dumps(FLIGHT))
    [first, *_] = steps_of(pipeline(step, SUPPRESSED, value=avro(folder)))
    assert first.function is not None
    return first.function(Flow.of_input(Records.from_rows(Row(b"k", each, 1, at) for at, each in enumerate(values))))


def counted(*values: bytes) -> Flow:
    """Results of windows with these values."""
    rows = Records.from_rows(Row(b"k", value, 1, at) for at, value in enumerate(values))
    start = np.zeros(len(values), np.int64)
    return Flow.of_input(replace(rows, window=(start, start + 1)))


def values_of(sifted: Sifted) -> list[bytes | None]:
    return [row.value for row in sifted.flow.rows.rows() if not row.time_only]


def test_a_filter_reads_fields_of_records_and_an_untouched_value_leaves_byte_for_byte(tmp_path: Path) -> None:
    given = [flight(), flight(delay=3), flight(weather=None), flight(delay=None)]
    sifted = sift(
        tmp_path, {"filter": "delay > 15 and weather.gust > 40 and scheduled < TIMESTAMP '2000-01-01'"}, *given
    )
    assert (values_of(sifted), sifted.filtered) == ([given[0]], 3)


def test_fields_become_json_where_a_step_says_so(tmp_path: Path) -> None:
    select = {"select": {"carrier": "carrier", "gust": "weather.gust", "at": "epoch_ms(scheduled)"}}
    assert values_of(sift(tmp_path, select, flight())) == [b'{"carrier":"UA","gust":41.5,"at":5}']


def test_a_value_that_cannot_be_read_is_rejected_with_its_schema(tmp_path: Path) -> None:
    sifted = sift(tmp_path, {"filter": "delay > 15"}, flight(), flight()[:-1], flight(18), b"{}", None)
    assert len(values_of(sifted)) == 1
    assert dict(zip(sifted.rejected.tolist(), sifted.causes, strict=True)) == {
        1: "value: not Avro of schema 17",
        2: "value: schema 18 is unknown",
        3: "value: names no schema",
        4: "value: null",
    }


KEY = {"type": "record", "name": "Key", "fields": [{"name": "carrier", "type": "string"}, {"name": "n", "type": "int"}]}


def key(carrier: str, n: int) -> bytes:
    return written(KEY, {"carrier": carrier, "n": n}, 3)


def sift_keys(folder: Path, step: dict[str, Any], *keys: bytes | None, **more: Any) -> Sifted:
    """What the first step makes of records with these keys, where the folder has the schema of number 3."""
    (folder / "3.avsc").write_text(json.dumps(KEY))
    found = next(each for each in steps_of(pipeline(step, SUPPRESSED, key=avro(folder, KEY), **more)) if each.function)
    assert found.function is not None
    return found.function(Flow.of_input(Records.from_rows(Row(each, b"v", 1, at) for at, each in enumerate(keys))))


def test_keys_are_records_of_their_fields_and_leave_byte_for_byte(tmp_path: Path) -> None:
    keys = [key("UA", 5), key("UA", 1), key("DL", 5), None, key("UA", 7)]
    sifted = sift_keys(tmp_path, {"filter": "key.carrier = 'UA' and key.n > 3"}, *keys)
    assert [row.key for row in sifted.flow.rows.rows() if not row.time_only] == [keys[0], keys[4]]
    assert (sifted.filtered, len(sifted.rejected)) == (3, 0)
    select = sift_keys(tmp_path, {"select": {"n": "key.n"}}, *keys)
    assert values_of(select) == [b'{"n":5}', b'{"n":1}', b'{"n":5}', b'{"n":null}', b'{"n":7}']


def test_a_key_that_cannot_be_read_is_rejected_where_it_is_read(tmp_path: Path) -> None:
    keys = [key("UA", 5), key("UA", 5)[:-1], b"k", written(KEY, {"carrier": "UA", "n": 5}, 4)]
    sifted = sift_keys(tmp_path, {"filter": "key.n > 3"}, *keys)
    assert dict(zip(sifted.rejected.tolist(), sifted.causes, strict=True)) == {
        1: "key: not Avro of schema 3",
        2: "key: names no schema",
        3: "key: schema 4 is unknown",
    }
    unread = sift_keys(tmp_path, {"filter": "timestamp > 0"}, *keys)
    assert (len(values_of(unread)), len(unread.rejected)) == (4, 0)


def test_keys_become_one_of_their_fields(tmp_path: Path) -> None:
    (tmp_path / "3.avsc").write_text(json.dumps(KEY))
    config = PipelineConfig.model_validate(
        {"input": "in", "output": "out", "output_partitions": 4, "key": avro(tmp_path, KEY)}
        | {"steps": [{"select_key": "key.carrier"}, {"filter": "key = 'UA'"}]}
    )
    assert config.places()[-1].key == "string"


def test_keys_are_no_json_objects(tmp_path: Path) -> None:
    assert "keys are not read as JSON" in str(problems(SUPPRESSED, key={"json": {"n": "int64"}}))


def test_a_schema_that_comes_while_the_pipeline_runs_is_found(tmp_path: Path) -> None:
    newer = {**FLIGHT, "fields": [*FLIGHT["fields"], {"name": "tail", "type": "string"}]}
    value = flight(18, newer, tail="N1")
    (tmp_path / "17.avsc").write_text(json.dumps(FLIGHT))
    [first, *_] = steps_of(pipeline({"filter": "delay > 15"}, SUPPRESSED, value=avro(tmp_path)))
    assert first.function is not None
    rows = Flow.of_input(Records.from_rows([Row(b"k", value, 1, 0)]))
    assert first.function(rows).causes == ("value: schema 18 is unknown",)
    (tmp_path / "18.avsc").write_text(json.dumps(newer))
    assert values_of(first.function(rows)) == [value]


def test_a_folder_that_cannot_be_read_is_waited_for(tmp_path: Path) -> None:
    [first, *_] = steps_of(pipeline({"filter": "delay > 15"}, SUPPRESSED, value=avro(tmp_path / "missing")))
    assert first.function is not None
    with pytest.raises(Unavailable, match="a schema cannot be read"):
        first.function(Flow.of_input(Records.from_rows([Row(b"k", flight(), 1, 0)])))


COUNTS = {"name": "n", "kind": "windowed_aggregation", "window": {"tumbling": "1h", "grace": "1m"}, "emit": "updates"}


def test_steps_that_would_read_avro_as_json_are_refused_with_the_remedy(tmp_path: Path) -> None:
    value = avro(tmp_path)
    last = {**COUNTS, "aggregate": {"last": True}}
    clock = {"name": "clock", "type": {"type": "int", "logicalType": "time-millis"}}
    [cause] = problems(last, value=avro(tmp_path, FLIGHT | {"fields": [*FLIGHT["fields"], clock]})).values()
    assert cause.startswith("field clock would have the type time64[us]")
    assert pipeline(last, value=value)
    [cause] = problems(
        {**COUNTS, "aggregate": {"last": {"field": "delay"}}}, value=value, timestamp={"field": "scheduled"}
    ).values()
    assert cause == "field scheduled, which has the timestamps, is no number, but timestamp_ntz"
    assert pipeline({"select": {"delay": "delay"}}, last, value=value)
    assert pipeline({**COUNTS, "aggregate": {"count": True}}, value=value)
    timed = problems(SUPPRESSED, value=value, timestamp={"field": "at"})
    assert timed == {"steps.0": "values are Avro, and the event timestamp is read from JSON"}
    assert pipeline({"select": {"at": "epoch_ms(scheduled)"}}, SUPPRESSED, value=value, timestamp={"field": "at"})


def test_a_description_that_is_wrong_is_a_problem(tmp_path: Path) -> None:
    for wrong, cause in (
        ({"avro": {"schema": FLIGHT}}, "not a description of Avro values"),
        ({"avro": {"schema": FLIGHT, "schemas": "here"}}, "the folder of the schemas is not absolute"),
        (avro(tmp_path, {"type": "int"}), "not the schema of a record"),
        ({"avro": {"schema": {"type": "record"}, "schemas": str(tmp_path)}}, "not a schema of Avro"),
    ):
        [(where, found)] = problems(SUPPRESSED, value=wrong).items()
        assert (where, found.startswith(cause)) == ("value", True)


def test_a_program_names_the_schema_as_a_mapping_or_by_its_file(tmp_path: Path) -> None:
    file = tmp_path / "flight.avsc"
    file.write_text(json.dumps(FLIGHT))
    app, other = (tg.Application("flights", kafka="localhost:1", lake=tmp_path, keep_output="1d") for _ in range(2))
    for each, schema in ((app, FLIGHT), (other, file)):
        flights = each.stream("departures", name="late", value=tg.avro(schema=schema, schemas=tmp_path))
        flights.filter("delay > 15").suppress(tg.time_limit("1s")).to("late-departures")
    assert app == other
    assert tg.Application.from_yaml(app.to_yaml()) == app


def test_the_program_of_the_page_on_avro_reads_its_schema(tmp_path: Path) -> None:
    """docs/how-to/avro.md."""
    program = next(block.text for block in blocks(DOCS / "how-to" / "avro.md") if block.language == "python")
    schema, count = (block.text for block in blocks(DOCS / "how-to" / "avro.md") if block.language == "json")
    (tmp_path / "flight.avsc").write_text(schema)
    (tmp_path / "count.avsc").write_text(count)
    (tmp_path / "schemas").mkdir()
    (tmp_path / "schemas" / "17.avsc").write_text(json.dumps(FLIGHT))
    (tmp_path / "app.py").write_text(program)
    config = load_application(tmp_path / "app.py:app").configuration().operators["late"]
    assert isinstance(config, PipelineConfig)
    first, *_, last = steps_of(config)
    assert first.function is not None and last.function is not None
    results = last.function(counted(b'{"n":2,"worst":null}'))
    assert [read_by_oracle(value or b"", json.loads(count)) for value in values_of(results)] == [
        {"n": 2, "worst": None}
    ]
    rows = [Row(b"JFK", value, 1, at) for at, value in enumerate([flight(), flight(delay=5), flight(18)])]
    sifted = first.function(Flow.of_input(Records.from_rows(rows)))
    assert values_of(sifted) == [b'{"delay":20,"scheduled":5}']
    assert (sifted.filtered, sifted.causes) == (1, ("value: schema 18 is unknown",))


def test_results_are_written_as_avro_and_what_does_not_fit_is_rejected() -> None:
    schema = {"type": "record", "name": "Count", "fields": [{"name": "count", "type": "int"}]}
    output = {"encode": {"avro": {"schema": schema, "number": 5}}}
    config = pipeline({**COUNTS, "aggregate": {"count": True}}, output)
    last = steps_of(config)[-1]
    assert last.function is not None
    sifted = last.function(counted(b"7", b"3000000000", b"x"))
    assert [read_by_oracle(value or b"", schema) for value in values_of(sifted)] == [{"count": 7}]
    assert sifted.causes == ("its count does not fit the schema", "value: not JSON")
    assert config.places()[-1].values.form == "bytes"


def test_a_schema_that_results_do_not_have_is_a_problem() -> None:
    schema = {"type": "record", "name": "Count", "fields": [{"name": "n", "type": "int"}]}
    counts = {**COUNTS, "aggregate": {"count": True}}
    found = problems(counts, {"encode": {"avro": {"schema": schema, "number": 5}}})
    assert found == {"steps.1": "count is no field of the schema"}
    for wrong in ({"avro": {"schema": schema}}, {"avro": {"schema": schema, "number": -1}}, {"avro": 5}, "json"):
        assert problems(counts, {"encode": wrong}).keys() == {"steps.1.encode"}
