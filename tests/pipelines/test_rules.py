"""The rules of a pipeline: what steps determine for those behind them, and what is refused."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
import yaml

from tidegate.contracts.config.base import read
from tidegate.contracts.config.rules import Held, holds_nothing
from tidegate.contracts.errors import ConfigurationError
from tidegate.contracts.values import as_written
from tidegate.operators.pipeline.config import PipelineConfig
from tidegate.runtime.configuration.changes import changes

pytestmark = pytest.mark.fast

COUNTS = {
    "name": "per_hour",
    "kind": "windowed_aggregation",
    "window": {"tumbling": "1h", "grace": "10m"},
    "aggregate": {"count": True},
    "emit": "updates",
}
FINAL = {"name": "final", "kind": "suppression", "until": "window_close"}
QUIET_USERS = yaml.safe_load("""
input: events
key: int32
value: string
steps:
  - name: per_hour
    kind: windowed_aggregation
    window: {tumbling: 1h, grace: 10m}
    aggregate: {count: true}
    emit: updates
  - {name: final, kind: suppression, until: window_close, buffer: {max_bytes: 5MiB, when_full: shut_down}}
  - {filter: "count < 3"}
  - {to: alerts, key: kafka_windows}
""")


def pipeline(*steps: dict[str, Any], **options: Any) -> PipelineConfig:
    return read(PipelineConfig, {"input": "events", "steps": list(steps), **options})


def problems(*steps: dict[str, Any], **options: Any) -> dict[str, str]:
    with pytest.raises(ConfigurationError) as refused:
        pipeline(*steps, **options)
    return {problem.where: problem.cause for problem in refused.value.problems}


@pytest.mark.parametrize("name", ["", " ", "a\0b"])
@pytest.mark.parametrize("verb", ["select", "with_columns"])
def test_a_field_that_a_step_makes_has_a_name(verb: str, name: str) -> None:
    [cause] = problems({verb: {name: "1"}}, COUNTS, value={"json": {"n": "int64"}}).values()
    assert "is not the name of a field" in cause


@pytest.mark.parametrize(
    "step",
    [
        {"map": "shop:legs", "emits": {"o": {"a": "int64", "A": "int64"}}},
        {"flat_map": "shop:legs", "emits": {"a": "int64", "A": "int64"}},
        {"name": "j", "kind": "stream_table_join", "table": "t", "join": "left", "emits": {"a": "int64", "A": "int64"}},
    ],
)
def test_fields_that_a_step_emits_differ_in_more_than_upper_and_lower_case(step: dict[str, Any]) -> None:
    [cause] = problems(step).values()
    assert "more than upper and lower case" in cause


def test_a_suppression_takes_the_grace_and_the_length_from_the_windows_before_it() -> None:
    config = read(PipelineConfig, QUIET_USERS)
    assert config.operators["final"].model_dump()["grace"] == 600_000
    assert config.holds() == {"per_hour": 0, "final": 4_200_000}


def refused(before: PipelineConfig, after: PipelineConfig, held: Held = holds_nothing) -> list[str | None]:
    """Why the changes of a configuration are refused, of those that are."""
    return [change.refused for change in changes(before, after, held=held) if change.refused]


FEW = {"name": "few", "from": "final", "filter": "count < 3"}


def test_topics_and_kept_results_may_change_while_steps_hold_records() -> None:
    before = pipeline(COUNTS, FINAL, FEW, {"to": "few"})
    assert refused(before, pipeline(COUNTS, {"to": "updates"}, FINAL, FEW | {"name": "others"}, {"to": "few"})) == []
    assert refused(before, pipeline(COUNTS | {"keep": True}, FINAL, {"to": "all"}, FEW)) == []


def test_a_topic_never_has_keys_in_two_formats() -> None:
    before = pipeline(COUNTS, {"to": "updates"}, FINAL, {"to": "final"})
    after = pipeline(COUNTS, {"to": "updates", "key": "kafka_windows"}, FINAL, {"to": "final"})
    assert refused(before, after) == ["topic updates would have keys in two formats"]


def test_the_last_step_may_name_the_topic_of_the_results() -> None:
    config = read(PipelineConfig, QUIET_USERS)
    assert (config.output, config.adds_windows()) == ("alerts", "time")
    assert pipeline(COUNTS, {"to": "alerts"}).adds_windows() == "headers"
    assert pipeline({"name": "first", "kind": "deduplicate", "within": "forever"}).adds_windows() is None


def test_the_types_of_keys_and_values_may_be_written_with_the_topic() -> None:
    topic = {"topic": "events", "key": "int32", "value": {"json": {"delay": "int64"}}}
    beside = pipeline(COUNTS, key="int32", value={"json": {"delay": "int64"}})
    assert read(PipelineConfig, {"input": topic, "steps": [COUNTS]}) == beside
    windowed = {"topic": "events", "key": {"windows": "headers", "of": "string"}, "value": "string"}
    found = read(PipelineConfig, {"input": windowed, "steps": [FINAL | {"grace": "1m"}]})
    assert (found.windows, found.key_format, found.value) == ("headers", "string", "string")


def test_what_is_written_is_read_as_the_same_pipeline() -> None:
    config = read(PipelineConfig, QUIET_USERS)
    assert read(PipelineConfig, config.model_dump(mode="json", exclude_defaults=True)) == config


def test_the_first_step_has_the_timestamps_and_the_bounds_of_the_pipeline() -> None:
    config = pipeline(COUNTS, FINAL, timestamp={"field": "at"}, max_ahead="1h")
    first, last = config.operators.values()
    assert (first.timestamp, first.max_ahead) == (config.timestamp, 3_600_000)
    assert (last.timestamp, last.max_ahead) == (None, None)


def test_expressions_read_the_columns_of_the_step_before_them() -> None:
    fields = {"json": {"delay": "int64", "gust": "float64"}}
    added = {"with_columns": {"storm": "gust > 40", "gust": "gust * 1.5"}}
    aggregate = {"count": True, "max": {"field": "delay"}}
    counts = COUNTS | {"aggregate": aggregate}
    config = pipeline(added, counts, {"select": {"n": "count", "worst": "max"}}, value=fields)
    names = [place.columns.names for place in config.places()]
    record, windows = ["timestamp", "key"], ["timestamp", "window_start", "window_end", "key"]
    assert [name[len(record) :] for name in names[:2]] == [["delay", "gust"], ["delay", "gust", "storm"]]
    assert names[2:] == [[*windows, "count", "max"], [*windows, "n", "worst"]]
    assert str(config.places()[-1].values.schema.field("worst").type) == "int64"


EXACT = {"price": "decimal(9,2)", "day": "date", "moment": "timestamp", "in": {"tax": "decimal(3,2)"}, "n": "int64"}


@pytest.mark.parametrize(
    ("text", "type"),
    [
        ("price", "decimal(9,2)"),
        ('price * 2 + "in".tax', "decimal(18,2)"),
        ('"in"', {"tax": "decimal(3,2)"}),
        ("price / 3", "float64"),
        ("n * 1.5", "float64"),
        ("day + 1", "date"),
        ("date_trunc('hour', moment)", "timestamp"),
        ("make_timestamp(n)", "timestamp_ntz"),
        ("CAST(moment AS date)", "date"),
    ],
)
def test_what_is_computed_of_decimals_and_times_is_exact_and_numbers_in_sql_are_doubles(text: str, type: Any) -> None:
    for step in ("select", "with_columns"):
        [*_, last] = pipeline({step: {"x": text}}, FIRST, value={"json": EXACT}).places()
        assert as_written(last.values.schema)["x"] == type


def test_a_computed_value_that_json_does_not_have_is_refused_with_the_remedy() -> None:
    for text in ("moment - moment", "to_seconds(n)", "n::hugeint"):
        [(where, cause)] = problems({"select": {"x": text}}, FIRST, value={"json": EXACT}).items()
        assert where == "steps.0" and "which JSON values do not have" in cause


def test_other_formats_than_json_have_doubles_in_place_of_decimals() -> None:
    written = {"type": "record", "name": "R", "fields": [{"name": "x", "type": ["null", "double"]}]}
    for form in ("float64", {"avro": {"schema": written, "number": 1}}):
        steps = (FIRST, {"select": {"x": "price * 2"}}, {"encode": form})
        *_, encoded, last = pipeline(*steps, value={"json": EXACT}).places()
        assert pa.types.is_decimal(encoded.values.schema.field("x").type) and not last.values.has_fields


def test_aggregates_read_decimals_as_numbers_and_keep_the_first_one_exact() -> None:
    aggregate = {"total": {"sum": "price"}, "one": {"last": "price"}, "day": {"last": "day"}}
    [*_, last] = pipeline(COUNTS | {"aggregate": aggregate}, FINAL, value={"json": EXACT}).places()
    assert as_written(last.values.schema) == {"total": "float64", "one": "decimal(9,2)", "day": "date"}
    wrong = problems(COUNTS | {"aggregate": {"day": {"max": "day"}}}, FINAL, value={"json": EXACT})
    assert wrong == {"steps.0.aggregate": "field day is no number, but date"}


def test_all_problems_of_all_steps_are_reported_at_once() -> None:
    found = problems(
        FINAL,
        COUNTS | {"window": {"tumbling": "1h"}, "aggregate": {"cont": True}},
        {"fitler": "x"},
        {"to": "a/b"},
        {"name": "t", "kind": "table_history", "history_retention": "1d"},
        {"name": "t", "kind": "nothing"},
        {"name": "pairs", "kind": "stream_stream_join", "right": "clicks"},
        FINAL | {"timestamp": {"field": "x"}},
        FINAL,
    )
    assert found == {
        "steps.0": "its input has no windows",
        "steps.1.window.grace": "required, but missing",
        "steps.1.aggregate.cont": "not an aggregate",
        "steps.2": "not a step",
        "steps.3.to": "not a valid topic name",
        "steps.4": "table_history has no results that a step could read",
        "steps.5": "there are no steps of kind nothing",
        "steps.6": "stream_stream_join reads topics, and is no step",
        "steps.7": "timestamp is an option of the whole pipeline",
        "steps.8": "another step is named final",
    }


@pytest.mark.parametrize(
    ("steps", "where", "cause"),
    [
        ([COUNTS, {"filter": "cuont < 3"}], "steps.1", "no column cuont (cuont < 3)"),
        ([COUNTS, COUNTS], "steps.1", "another step is named per_hour"),
        ([COUNTS, COUNTS | {"name": "again"}], "steps.1", "its input has windows already"),
        ([COUNTS, FINAL | {"name": "A b"}], "steps.1.name", "not a valid name"),
        (
            [COUNTS, FINAL | {"grace": "1m"}],
            "steps.1",
            "grace: the windows of its input change until 10m after they end",
        ),
        ([FINAL | {"name": "input"}], "steps.0", "input is the name of what the first step reads"),
        ([COUNTS | {"emits": {"n": "int64"}}], "steps.0", "the fields of its results are known without `emits`"),
        ([COUNTS, {"filter": "count"}], "steps.1", "a condition must be true or false (count: int64)"),
        ([COUNTS, {"require": "count < 3"}], "steps.1.reason", "required, but missing"),
        ([{"map": "legs:stops"}, COUNTS], "steps.0.emits", "required, but missing"),
        ([{"flat_map": "stops", "emits": {"n": "int64"}}, COUNTS], "steps.0.flat_map", "not the name of a function"),
        (
            [{"flat_map": "legs:stops", "emits": {"row": "int64"}}, COUNTS],
            "steps.0",
            "row says from which row another was made",
        ),
        ([{"with_columns": {"a": "1"}}, COUNTS], "steps.0", "values have no fields to which others are added"),
        (
            [COUNTS, {"select": {"at": "to_seconds(timestamp)"}}],
            "steps.1",
            "field at would have the type month_day_nano_interval, which JSON values do not have",
        ),
    ],
)
def test_an_impossible_step_is_refused_with_its_cause(steps: list[dict[str, Any]], where: str, cause: str) -> None:
    assert problems(*steps) == {where: cause}


def test_a_pipeline_needs_no_step_that_holds_state() -> None:
    config = pipeline({"filter": "key = 'a'::blob"}, {"to": "copies"})
    assert (config.operators, config.holds(), config.hold(None), config.closed_kept_for_ms()) == ({}, {}, 0, None)
    assert [(each.topic, each.step) for each in config.outputs()] == [("copies", "1")]
    assert [(each.topic, each.step) for each in pipeline({"to": "all"}).outputs()] == [("all", "input")]


def test_a_step_that_holds_state_comes_and_goes_in_a_pipeline_without_others() -> None:
    filtered = {"filter": "key = 'a'::blob"}
    without, one = pipeline(filtered), pipeline(filtered, {"name": "first", **FIRST})
    assert refused(without, one) == []
    assert refused(one, without) == []
    assert refused(one, without, held=lambda _: 3) == [
        "first holds 3: let `tidegate flush` release it, and windows expire"
    ]
    repeated = {"flat_map": "legs:stops", "emits": {"n": "int64"}}
    assert refused(without, pipeline(repeated)) == []


def test_the_timestamp_of_a_result_that_no_step_with_state_took_is_read_from_json() -> None:
    stamped = {"timestamp": {"field": "value"}, "value": "int64"}
    cause = "values are int64, and the event timestamp is read from JSON"
    assert problems({"filter": "value > 1"}, **stamped) == {"steps.0": cause}
    assert problems({"to": "copied"}, **stamped) == {"steps.0": cause}
    assert pipeline({"select": {"value": "value"}}, **stamped)


def test_the_field_of_the_timestamps_is_not_lost_before_an_operator_reads_it() -> None:
    fields = {"value": {"json": {"delay": "int64"}}, "timestamp": {"field": "at"}}
    assert problems({"select": {"delay": "delay"}}, COUNTS, **fields) == {
        "steps.0": "field at, which has the timestamps, is lost"
    }
    pipeline({"filter": "delay > 1"}, COUNTS, {"select": {"n": "count"}}, **fields)


def test_what_stands_behind_a_wrong_step_is_not_blamed_for_it() -> None:
    assert list(problems(COUNTS | {"emit": "sometimes"}, FINAL, {"filter": "count < 3"})) == ["steps.0.emit"]


def test_kafka_s_format_of_windowed_keys_needs_windows_of_which_it_is_known() -> None:
    unlimited = COUNTS | {"window": {"unlimited": True}}
    assert problems(unlimited, {"to": "alerts", "key": "kafka_windows"}) == {
        "output_windows.output_windows": "Kafka's format of keys has no unlimited windows"
    }
    first = {"name": "first", "kind": "deduplicate", "within": "forever"}
    assert problems(first, {"to": "alerts", "key": "kafka_windows"}) == {
        "output_windows": "the input's keys have no windows"
    }


@pytest.mark.parametrize("verb", ["with_columns", "select"])
def test_equal_pipelines_have_equal_hashes_so_that_a_task_keeps_their_operator(verb: str) -> None:
    raw = {
        "input": "in",
        "value": {"json": {"delay": "int64"}},
        "steps": [{verb: {"more": "delay + 1", "less": "delay - 1"}}, {"name": "held", **HELD}],
    }
    one, other = (PipelineConfig.model_validate(raw) for _ in range(2))
    assert (hash(one), one) == (hash(other), other)


HELD = {"kind": "suppression", "until": {"time_limit": "5s"}}


def test_values_are_written_in_a_format_only_if_they_have_one_field_of_its_types() -> None:
    encode = {"encode": "int64"}
    assert pipeline(COUNTS, encode).places()[-1].values.form == "int64"
    two = {"select": {"n": "count", "m": "count"}}
    assert problems(COUNTS, two, encode) == {"steps.2": "values have 2 fields (n, m), and int64 is one value"}
    text = {"select": {"n": "count::varchar"}}
    assert problems(COUNTS, text, encode) == {"steps.2": "n is of type string, which is not written as int64"}
    assert problems(COUNTS, {"encode": "json"}).keys() == {"steps.1.encode"}


def test_a_field_with_the_timestamp_is_not_encoded_before_an_operator_reads_it() -> None:
    steps = [{"encode": "int64"}, FIRST]
    found = problems(*steps, value={"json": {"at": "int64"}}, timestamp={"field": "at"})
    assert found == {"steps.0": "field at, which has the timestamps, is lost"}


def test_the_field_with_the_event_timestamp_stays_a_number() -> None:
    options: dict[str, Any] = {"value": {"json": {"at": "int64"}}, "timestamp": {"field": "at"}}
    found = problems({"with_columns": {"at": 'make_timestamp("at")'}}, FIRST, **options)
    assert found == {"steps.0": "field at, which has the timestamps, is no number, but timestamp_ntz"}
    assert pipeline({"with_columns": {"at": '"at" * 1000'}}, FIRST, **options)


FIRST = {"name": "first", "kind": "deduplicate", "within": "forever"}


@pytest.mark.parametrize("form", ["int16", "float32", "float64", "uuid"])
def test_keys_and_values_have_the_formats_of_kafka_s_serializers(form: str) -> None:
    config = pipeline({"filter": "key = value"}, FIRST, key=form, value=form)
    assert (config.key, config.value) == (form, form)
    assert config.value_format == ("string" if form == "uuid" else form)


@pytest.mark.parametrize("form", ["int16", "int32", "int64", "float32", "float64", "uuid"])
def test_a_step_that_would_read_numbers_of_kafka_as_json_is_refused_with_the_remedy(form: str) -> None:
    summed = {**COUNTS, "aggregate": {"value": {"sum": "value"}}}
    assert problems(summed, value=form) == {"steps.0": f"values are {form}, and windowed_aggregation reads JSON"}
    if form == "uuid":
        assert problems({"select": {"value": "value"}}, summed, value=form) == {
            "steps.1.aggregate": "field value is no number, but string"
        }
    else:
        assert pipeline({"select": {"value": "value"}}, summed, value=form)
