"""Operators of one file infer options from the writer of their input, and contradictions are reported."""

from __future__ import annotations

from typing import Any

import pytest

from tests.metadata import small_meta
from tidegate.contracts.batch_metadata import BatchMeta, Counts
from tidegate.contracts.config.key_rules import TimeWindows
from tidegate.contracts.errors import ConfigurationError
from tidegate.runtime.configuration.application import (
    Application,
    application_of,
    config_of,
    settings_of,
)
from tidegate.runtime.configuration.changes import as_kept, changes

pytestmark = pytest.mark.fast

FILE = {"application": "app", "lake": "lake", "keep_output": "1d", "kafka": {"bootstrap.servers": "b:9092"}}
COUNTS: dict[str, Any] = {
    "kind": "windowed_aggregation",
    "input": "events",
    "output": "counts",
    "window": {"tumbling": "1h", "grace": "10m"},
    "aggregate": {"count": True},
    "emit": "updates",
}
KAFKA_COUNTS = COUNTS | {"output": {"topic": "counts", "key": {"windows": "kafka"}}}
SESSIONS = COUNTS | {"window": {"session": "5ms", "grace": "10ms"}}
FINAL: dict[str, Any] = {"kind": "suppression", "input": "counts", "output": "final", "until": "window_close"}
LIMITED: dict[str, Any] = {"kind": "suppression", "input": "counts", "until": {"time_limit": "30s"}}
TABLE: dict[str, Any] = {"kind": "table_history", "input": "rates", "history_retention": "30d"}
JOIN: dict[str, Any] = {"kind": "stream_table_join", "input": "counts", "table": "table", "join": "left"}


def application(**operators: dict[str, Any]) -> Application:
    return application_of({**FILE, "operators": operators})


def problems(**operators: dict[str, Any]) -> dict[str, str]:
    """Where there is a problem, and its cause."""
    with pytest.raises(ConfigurationError) as raised:
        application(**operators)
    return {problem.where: problem.cause for problem in raised.value.problems}


def topic(name: str, **key: Any) -> dict[str, Any]:
    return {"topic": name, "key": key}


@pytest.mark.parametrize("order", [("counts", "final"), ("final", "counts")])
def test_a_suppression_takes_windows_and_grace_from_the_windows_that_feed_it(order) -> None:
    operators = {"counts": COUNTS, "final": FINAL}
    final = application(**{name: operators[name] for name in order}).operators["final"]
    assert (final.windows, final.grace, final.timer) == ("headers", 600_000, "window_end")


def test_a_session_closes_a_millisecond_after_its_gap_and_grace() -> None:
    assert application(counts=SESSIONS, final=FINAL).operators["final"].grace == 16


@pytest.mark.parametrize(("writer", "windows"), [(COUNTS, "headers"), (KAFKA_COUNTS, TimeWindows(time="1h"))])
def test_the_place_of_windows_is_inferred_from_the_writer(writer, windows) -> None:
    limited = application(counts=writer, limited=LIMITED).operators["limited"]
    assert (limited.windows, limited.timer) == (windows, "window_end")


def test_a_reader_of_a_suppression_s_output_infers_its_windows() -> None:
    read = application(counts=COUNTS, final=FINAL, kept=TABLE | {"input": "final"}).operators["kept"]
    assert read.windows == "headers"


def test_a_format_of_keys_is_inferred_from_the_writer() -> None:
    assert application(counts=COUNTS | {"key_format": "string"}, final=FINAL).operators["final"].key_format == "string"


def test_without_a_writer_in_the_file_keys_are_the_record_keys() -> None:
    assert application(limited=LIMITED).operators["limited"].windows == "none"


def test_a_topic_declares_its_keys() -> None:
    said = LIMITED | {"input": topic("counts", windows="headers", of="string")}
    limited = application(limited=said).operators["limited"]
    assert (limited.input, limited.windows, limited.key_format) == ("counts", "headers", "string")


MERGED: dict[str, Any] = LIMITED | {"input": ["counts", "others"]}


def test_topics_in_a_list_are_one_input() -> None:
    said = {"topic": ["counts", "others"], "key": {"windows": "headers", "of": "string"}}
    flat = {"input": "counts", "further_inputs": ["others"], "windows": "headers", "key_format": "string"}
    for written in ({"input": said}, flat):
        limited = application(limited=LIMITED | written).operators["limited"]
        assert limited.inputs == ("counts", "others")
        assert (limited.windows, limited.key_format) == ("headers", "string")
    assert application(limited=LIMITED | {"input": ["counts"]}) == application(limited=LIMITED)


def test_merged_topics_are_like_those_that_an_operator_of_the_file_writes() -> None:
    """What nobody in the file writes is said to be like the others."""
    assert application(counts=COUNTS, limited=MERGED).operators["limited"].windows == "headers"
    other = COUNTS | {"output": "others", "window": {"tumbling": "2h", "grace": "20m"}}
    assert application(counts=COUNTS, other=other, limited=MERGED).operators["limited"].windows == "headers"
    final = MERGED | {"until": "window_close"}
    assert "operators.final.grace" in problems(counts=COUNTS, other=other, final=final), "they close at different times"


def test_merged_topics_whose_writers_differ_are_a_problem() -> None:
    sessions = SESSIONS | {"output": {"topic": "others", "key": {"windows": "kafka"}}}
    assert problems(counts=COUNTS, other=sessions, limited=MERGED | {"windows": "headers"}) == {
        "operators.limited.windows": "the operator that writes the topic names windows by session"
    }


@pytest.mark.parametrize(
    ("input_", "place", "cause"),
    [
        ([], "input", "no topic is named"),
        (["counts", "counts"], "further_inputs", "topic counts is named twice"),
        (["counts", "a b"], "further_inputs.0", "not a valid topic name"),
        (["counts", 5], "further_inputs.0", "not text"),
        ({"topic": []}, "input", "no topic is named"),
        ([f"t{number}" for number in range(33)], "further_inputs", "33 topics are too many to merge"),
    ],
)
def test_topics_that_cannot_be_merged_are_refused(input_: Any, place: str, cause: str) -> None:
    assert problems(limited=LIMITED | {"input": input_}) == {f"operators.limited.{place}": cause}


def test_a_list_of_topics_and_further_ones_are_refused_together() -> None:
    said = LIMITED | {"input": ["counts", "others"], "further_inputs": ["more"]}
    assert problems(limited=said) == {"operators.limited.input": "further topics are named twice"}


@pytest.mark.parametrize("option", ["output", "dead_letters"])
def test_an_operator_writes_to_none_of_the_topics_that_it_merges(option: str) -> None:
    assert list(problems(limited=MERGED | {option: "others"})) == [f"operators.limited.{option}"]


def test_a_step_writes_to_none_of_the_topics_that_a_pipeline_merges() -> None:
    steps = [{"filter": "key is null"}, {"to": "others"}, {"filter": "true"}]
    found = problems(chain={"kind": "pipeline", "input": ["counts", "others"], "steps": steps})
    assert found == {"operators.chain.steps.1": "the topic is also the input"}


def test_operators_that_merge_each_other_s_output_are_a_loop() -> None:
    other = LIMITED | {"input": "results", "output": "others"}
    found = problems(limited=MERGED | {"output": "results"}, other=other)
    [(place, cause)] = found.items()
    assert (place, cause.partition(":")[0]) == ("operators.limited.input", "the operators read their own output")


def test_an_operator_of_two_streams_does_not_merge_topics() -> None:
    two = {"kind": "stream_stream_join", "right": "more", "join": "left", "before": 0, "after": "1s", "grace": 0}
    found = problems(one=two | {"input": ["counts", "others"]})
    assert found == {"operators.one.further_inputs": "an operator of two streams cannot merge topics"}


def test_what_an_operator_merges_is_written_in_its_log_and_cannot_change() -> None:
    merged, alone = (application(limited=each).operators["limited"] for each in (MERGED, LIMITED))
    assert config_of(settings_of(merged)) == merged
    [change] = changes(alone, merged)
    assert (change.option, change.refused is not None) == ("further_inputs", True)


def test_all_contradictions_between_operators_are_reported_at_once() -> None:
    found = problems(
        counts=KAFKA_COUNTS | {"key_format": "string"},
        final=FINAL | {"input": topic("counts", windows={"time": "2h"}, of="json"), "grace": "5m"},
        limited=LIMITED | {"windows": "none"},
        table=TABLE,
        join=JOIN | {"grace": "40d"},
    )
    assert found == {
        "operators.final.windows": "the operator that writes the topic names windows by {time: 1h}",
        "operators.final.key_format": "the operator that writes the topic declares string",
        "operators.final.grace": "the windows of its input change until 10m after they end",
        "operators.limited.windows": "the operator that writes the topic names windows by {time: 1h}",
        "operators.join.table": found["operators.join.table"],
    }


def test_every_conflict_with_a_join_s_table_is_reported() -> None:
    with pytest.raises(ConfigurationError) as raised:
        application(counts=COUNTS, table=TABLE, join=JOIN | {"grace": "40d"})
    causes = [problem.cause for problem in raised.value.problems]
    assert causes[0] == "the table's keys have no windows, and the stream's have"
    assert causes[1].startswith("the table's history_retention 30d is not greater than grace 40d")


def test_a_join_can_deliberately_look_up_plain_keys() -> None:
    assert application(counts=COUNTS, table=TABLE, join=JOIN | {"windows": "ignore"})


def test_a_windowed_table_accepts_only_windowed_streams() -> None:
    windowed = TABLE | {"input": topic("rates", windows="headers")}
    assert application(counts=COUNTS, table=windowed, join=JOIN)
    assert problems(table=windowed, join=JOIN) == {
        "operators.join.table": "the table's keys have windows, and the stream's have none"
    }


@pytest.mark.parametrize(
    ("operator", "option", "cause"),
    [
        (
            FINAL | {"grace": 0, "windows": "none"},
            "until",
            "window_close needs windows in the keys, and windows: none leaves them out",
        ),
        (LIMITED | {"timer": "window_end"}, "timer", "the input's keys have no windows"),
        (LIMITED | {"output": topic("out", windows="kafka")}, "output_windows", "the input's keys have no windows"),
        (
            FINAL | {"grace": 0, "output": topic("out", windows="kafka")},
            "output_windows",
            "the input's headers do not say whether windows are sessions",
        ),
        (LIMITED | {"input": topic("counts", window="headers")}, "input", "not a topic"),
        (LIMITED | {"windows": "somewhere"}, "windows", "it is not a way to name windows"),
        (COUNTS | {"window": {"unlimited": True}} | {"output": topic("o", windows="kafka")}, "output_windows", "Kafka"),
    ],
)
def test_an_impossible_value_is_refused_at_its_option(operator, option, cause) -> None:
    found = problems(it=operator)
    assert found[f"operators.it.{option}"].startswith(cause)


def log_of(settings: dict[str, Any]) -> BatchMeta:
    """The newest batch of a log that has read records under these settings."""
    return small_meta(settings=settings, next_offset={0: 1}, totals={0: Counts(records_in=1, applied=1)})


BEFORE = {"kind": "suppression", "input": "counts", "until": {"time_limit": "30000ms"}}


def test_an_older_log_keeps_ignoring_windows_until_the_file_says_otherwise() -> None:
    inferred = application(counts=COUNTS, limited=LIMITED).operators["limited"]
    kept = as_kept(log_of(BEFORE), inferred)
    assert (kept.windows, kept.timer) == ("ignore", "first_update")
    assert as_kept(log_of(settings_of(kept)), inferred) == kept
    assert not [change for change in changes(config_of(BEFORE), kept) if change.refused]


def test_a_new_log_rejects_windowed_records_without_configuration() -> None:
    unsaid = application(limited=LIMITED).operators["limited"]
    assert as_kept(None, unsaid) is unsaid
    assert as_kept(log_of(settings_of(unsaid)), unsaid) is unsaid


@pytest.mark.parametrize(
    ("was", "now", "refused"),
    [
        ("ignore", "none", False),
        ("none", "ignore", False),
        ("headers", {"time": "1h"}, False),
        ("none", "headers", True),
        ("ignore", "session", True),
        ({"time": "1h"}, "ignore", True),
    ],
)
@pytest.mark.parametrize("kind", [LIMITED, TABLE, JOIN])
def test_an_operator_cannot_change_between_windowed_and_plain_keys(kind, was, now, refused) -> None:
    more = {"timer": "first_update"} if kind is LIMITED else {}
    before, after = (config_of(kind | more | {"windows": windows}) for windows in (was, now))
    (change,) = changes(before, after)
    assert (change.option, change.refused is not None) == ("windows", refused)


def test_final_results_of_an_older_log_use_windows_in_headers() -> None:
    before = {"kind": "suppression", "input": "counts", "until": "window_close", "grace": "0ms"}
    assert config_of(before).windows == "headers"
