"""Explanations of emissions: recomputed from logs that operators of every kind have written."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from tests.console.logs import PIPELINE, START_MS, SUPPRESSION, TABLE, WINDOWS, Written, application, record
from tests.metadata import small_meta
from tidegate.contracts.errors import EngineError, UserError
from tidegate.contracts.records import Records, Row
from tidegate.operators.registry import kind_of, kinds_where
from tidegate.operators.stream_table_join import tables as stream_table_join
from tidegate.operators.suppression import step as suppression
from tidegate.operators.windowed_aggregation import step as windowed_aggregation
from tidegate.runtime.doctor.explanation.explanation import Facts, Recomputed, explanation_of
from tidegate.runtime.doctor.explanation.finding import explain, newest_emissions
from tidegate.state.delta_log.positions import Position

pytestmark = pytest.mark.fast

JOIN: dict[str, Any] = {"kind": "stream_table_join", "input": "in", "output": "out", "table": "table", "join": "left"}
DEDUPLICATE: dict[str, Any] = {"kind": "deduplicate", "input": "in", "output": "out", "within": "10s", "grace": "5s"}
SESSIONS = WINDOWS | {"window": {"session": "4s", "grace": "5s"}, "emit": "updates"}
ENRICHED: dict[str, Any] = PIPELINE | {
    "steps": [
        {"filter": "delay > 0"},
        {"name": "joined", "kind": "stream_table_join", "table": "table", "join": "left", "grace": "5s"},
        {"name": "limited", "kind": "suppression", "until": {"time_limit": "10s"}, "keep": True},
    ]
}

TWO_TOPICS = {"input": ["in", "others"]}
PRICES = TABLE | TWO_TOPICS

EXPLAINED = 12

KINDS: dict[str, dict[str, Any]] = {
    "suppression": SUPPRESSION,
    "bounded_suppression": SUPPRESSION | {"buffer": {"max_keys": 3, "when_full": "emit"}},
    "join": JOIN,
    "join_with_grace": JOIN | {"grace": "5s"},
    "join_with_a_table_of_two_topics": JOIN | {"table": "prices", "grace": "5s"},
    "merged_windows": SESSIONS | TWO_TOPICS,
    "windows": WINDOWS | {"window": {"tumbling": "5s", "grace": "0"}},
    "sessions": SESSIONS,
    "deduplicate": DEDUPLICATE,
    "pipeline": PIPELINE,
    "pipeline_with_join": ENRICHED,
}


def written(folder: Path, config: dict[str, Any]) -> Written:
    """The log of an operator after 24 batches of random records, which are late at times, with a flush and an advance.

    Tables get new versions meanwhile; of several topics each has a batch in turn.
    """
    dice, given = random.Random(7), application(folder, table=TABLE, prices=PRICES, op=config)
    table, prices, log = (Written(given, name) for name in given.operators)
    for batch in range(24):
        for each in (table, prices):
            versions = [_random(dice, batch, len(each.records[0])) for _ in range(2)]
            each.batch(versions, topic=_in_turn(each, batch))
        if batch % 8 == 6:
            log.flush()
        elif batch % 8 == 3:
            log.advance(batch * 3 + 12)
        else:
            records = [_random(dice, batch, len(log.records[0]) + at) for at in range(dice.randrange(3, 10))]
            log.batch(records, topic=_in_turn(log, batch))
    return log


def _in_turn(log: Written, batch: int) -> str:
    return log.config.inputs[batch % len(log.config.inputs)]


def _random(dice: random.Random, batch: int, offset: int) -> Row:
    second = batch * 3 + dice.randrange(-8, 3)
    return record(b"%d" % dice.randrange(5), b'{"delay": %d}' % dice.randrange(-2, 9), max(0, second), offset)


def positions(log: Written) -> list[Position]:
    rows = log.log.read("emission", columns=list(Position._fields))
    return [Position(**row) for row in rows.to_pylist()]


@pytest.mark.parametrize("config", KINDS.values(), ids=KINDS)
def test_the_emissions_of_every_kind_are_recomputed_byte_for_byte(tmp_path: Path, config: dict[str, Any]) -> None:
    log = written(tmp_path, config)
    found = positions(log)
    assert len(found) > EXPLAINED
    for position in random.Random(1).sample(found, EXPLAINED):
        explanation = explain(log.application, "op", position, log.read)
        assert (explanation.verdict, explanation.why) == ("equal", ""), explanation
        assert explanation.rule in kind_of_causes(config)
        assert explanation.settings["kind"] == config["kind"]


def kind_of_causes(config: dict[str, Any]) -> set[str]:
    """The rules of a kind; those of all kinds for a pipeline, whose steps may be of any."""
    kinds = kinds_where("causes") if config["kind"] == "pipeline" else (config["kind"],)
    return {rule for kind in kinds for rule in kind_of(kind).causes.values()}


def test_every_cause_that_an_operator_gives_has_a_rule() -> None:
    for kind, step in {"suppression": suppression, "windowed_aggregation": windowed_aggregation}.items():
        assert set(kind_of(kind).causes) == set(step.CAUSES)
    assert set(kind_of("stream_table_join").causes) == set(stream_table_join.CAUSES.to_pylist())


def test_an_emission_says_where_its_record_was_read_and_what_was_held(tmp_path: Path) -> None:
    """
    batch  1: a at 0 s     2: b at 4 s     3: c at 12 s, which releases a
    """
    log = Written(application(tmp_path, op=SUPPRESSION), "op")
    for second, key in ((0, b"a"), (4, b"b"), (12, b"c")):
        log.batch([record(key, b"v", second, len(log.records[0]))])
    [position] = newest_emissions(log.application, "op", b"a", None)
    found = explain(log.application, "op", position, log.read)
    assert (position.batch, found.row["cause"], found.source_offset, found.source_batch) == (3, "time", 0, 1)
    assert found.stream_time == (START_MS + 4_000, START_MS + 12_000)
    assert found.held is not None and (found.held["key"], found.held["batch"]) == (b"a", 1)
    with pytest.raises(UserError, match="no emission of that key"):
        newest_emissions(log.application, "op", b"a", 2)
    with pytest.raises(UserError, match="no emission there"):
        explain(log.application, "op", Position(3, 0, 9), log.read)


def test_a_join_says_which_version_it_read_and_what_newer_ones_say(tmp_path: Path) -> None:
    """
    table    1 at 0 s                    2 at 3 s, written later
    stream             a at 5 s: 1                              a at 6 s: 2
    """
    given = application(tmp_path, table=TABLE, op=JOIN)
    table, log = Written(given, "table"), Written(given, "op")
    table.batch([record(b"a", b"1", 0, 0)])
    log.batch([record(b"a", b"v", 5, 0)])
    [position] = newest_emissions(given, "op", b"a", None)
    assert explain(given, "op", position, log.read).newer is None
    table.batch([record(b"a", b"2", 3, 1)])
    found = explain(given, "op", position, log.read)
    [read], [newer] = found.tables, found.newer or []
    assert (read.name, read.version < read.newest) == ("table", True)
    assert (found.row["valid_from"], newer["valid_from"]) == (START_MS, START_MS + 3_000)
    assert found.row["value"] != newer["value"] and found.verdict == "equal"


def test_what_the_input_no_longer_has_is_unknown_and_not_wrong(tmp_path: Path) -> None:
    log = Written(application(tmp_path, op=DEDUPLICATE), "op")
    log.batch([record(b"a", b"v", 0, 0)])

    def read(*_range: int) -> Iterator[Records]:
        raise EngineError("no broker answers", remedy="start it")

    found = explain(log.application, "op", Position(1, 0, 0), read)
    assert found.verdict == "unknown" and "no broker answers" in found.why
    assert (found.rule, found.source_offset) == (
        "no record of the key near it in time was remembered, so it is no duplicate",
        0,
    )


def test_another_input_than_that_of_then_is_a_difference(tmp_path: Path) -> None:
    log = Written(application(tmp_path, op=DEDUPLICATE), "op")
    log.batch([record(b"a", b"v", 0, 0), record(b"b", b"v", 1, 1)])
    log.records[0][0] = record(b"a", b"other", 0, 0)
    assert explain(log.application, "op", Position(1, 0, 0), log.read).why == "value"
    assert explain(log.application, "op", Position(1, 0, 1), log.read).verdict == "equal"
    del log.records[0][1]
    assert explain(log.application, "op", Position(1, 0, 1), log.read).why == "only 1 emissions were recomputed"


def test_the_configuration_is_that_of_the_batch(tmp_path: Path) -> None:
    log = Written(application(tmp_path, op=SUPPRESSION), "op")
    log.batch([record(b"a", b"v", 0, 0), record(b"b", b"v", 11, 1)])
    now = application(tmp_path, op=SUPPRESSION | {"until": {"time_limit": "1h"}})
    found = explain(now, "op", Position(1, 0, 0), log.read)
    assert (found.settings["until"], found.verdict) == ({"time_limit": "10000ms"}, "equal")


def test_the_batch_that_read_a_record_is_known_by_its_offset_in_the_input() -> None:
    before = small_meta(batch=1, next_offset={0: 3})
    meta = small_meta(batch=2, next_offset={0: 4})
    row = {"cause": None, "offset": 7, "key": b"a"}
    facts = Facts(
        row=row,
        position=Position(2, 0, 0),
        before=before,
        meta=meta,
        held=None,
        causes={},
        again=Recomputed(pa.Table.from_pylist([row])),
        input_offset=3,
    )
    assert explanation_of(facts).source_batch == 2
    assert explanation_of(replace(facts, input_offset=2)).source_batch is None
