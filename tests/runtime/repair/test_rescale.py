"""A change of the number of partitions: what is asked before, what one commit changes, and what refuses it."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest
import yaml
from click.testing import CliRunner

from tests.lakes import lake_at
from tests.living_driver import living_driver
from tests.runtime.miniature import NAME, application, use_broker
from tests.runtime.scripted_kafka import ScriptedKafka
from tests.state.logs import commit_rows
from tidegate.cli.main import main
from tidegate.contracts import kill_points
from tidegate.contracts.batch_metadata import Counts
from tidegate.contracts.errors import StateError, UserError
from tidegate.contracts.log_schema import log_schema
from tidegate.contracts.records import Records, Row
from tidegate.kernels.memory.storage import MemoryStorage
from tidegate.kernels.record_format.partitioner import partitions_of
from tidegate.operators.registry import operator_for
from tidegate.runtime.configuration.application import config_of
from tidegate.runtime.kafka.first_partitions import FirstPartitions
from tidegate.runtime.repair import rescale as rescaling
from tidegate.runtime.repair.rescale import Request, check_request, move, rescale
from tidegate.state.delta_log.log_version import LogVersion
from tidegate.state.delta_log.operator_log import OperatorLog

pytestmark = pytest.mark.fast

KEYS = [b"key-%d" % number for number in range(40)]
LATE = pa.table({"key": pa.array([b"late"], pa.binary()), "cause": ["too late"]})
NEWEST = {0: 90_000, 1: 80_000}
ENDS = {0: 100, 1: 50}


def place(key: bytes, partitions: int) -> int:
    return int(partitions_of(pa.chunked_array([pa.array([key], pa.binary())]), partitions)[0])


@pytest.fixture
def kafka(monkeypatch: pytest.MonkeyPatch) -> ScriptedKafka:
    """The input and the output have grown to 6 partitions."""
    scripted = ScriptedKafka()
    scripted.topics = {"in": ("id of in", 6), "out": ("id of out", 6)}
    use_broker(monkeypatch, scripted)
    return scripted


def changes(config, keys: list[bytes], newest: int) -> tuple[pa.Table, Counts]:
    """The changelog of a record for each key, the last one at `newest`."""
    operator = operator_for(config)
    rows = [Row(key, b"v", newest - 100 * at, at, b"") for at, key in enumerate(keys)]
    result = operator.open(MemoryStorage(operator.layout)).step(Records.from_rows(rows), 0)
    return result.changes, result.counts


def made(folder: Path, *, strays: bool = False, **said):
    """An operator with two partitions, whose keys are where the partitioner puts them, or not."""
    found = application(folder)
    config = found.operators[NAME]
    log = OperatorLog.open(
        lake_at(found.lake.folder / NAME), NAME, log_schema(operator_for(config).columns), create=True
    )
    tables = {p: changes(config, [key for key in KEYS if (place(key, 2) == p) != strays], NEWEST[p]) for p in (0, 1)}
    commit_rows(
        log,
        1,
        {("state", partition): rows for partition, (rows, _counts) in tables.items()} | {("late", 0): LATE},
        operator=NAME,
        input="in",
        next_offset=ENDS,
        stream_time=NEWEST,
        last={0: (1, "a"), 1: (1, "a")},
        totals={partition: counts for partition, (_rows, counts) in tables.items()},
        leader_epoch={0: 3, 1: 4},
        topics={"in": "id of in", "out": "id of out"},
        **said,
    )
    return found


def newest(of):
    return LogVersion.at(lake_at(of.lake.folder / NAME), None)


def test_all_that_is_held_moves_to_the_partitions_of_its_keys_in_one_commit(kafka, tmp_path) -> None:
    here = made(tmp_path)
    before = newest(here)
    done = move(Request(application=here, name=NAME, partitions=6))
    after = newest(here)
    assert after.version == before.version + 1
    assert (done.before, done.after, done.held, done.rows, done.released) == (2, 6, len(KEYS), len(KEYS), 0)
    rows = after.read("state")
    assert sorted(rows.column("key").to_pylist()) == sorted(KEYS)
    assert rows.column("partition").to_pylist() == [place(key, 6) for key in rows.column("key").to_pylist()]
    assert after.read("late") == before.read("late")
    assert (after.newest().action, after.newest().epoch) == ("rescale", before.newest().epoch + 1)


def test_new_partitions_begin_at_their_first_offset_with_the_time_and_above_the_offsets_of_their_source(
    kafka, tmp_path
) -> None:
    here = made(tmp_path)
    kafka.starts = {0: 0, 1: 0, 2: 0, 3: 7, 4: 0, 5: 0}
    move(Request(application=here, name=NAME, partitions=6))
    meta = newest(here).newest()
    assert meta.next_offsets == {0: 100, 1: 50, 2: 0, 3: 7, 4: 0, 5: 0}
    assert {p: known.stream_time for p, known in meta.partitions.items()} == {p: NEWEST[p % 2] for p in range(6)}
    assert {p: known.raised for p, known in meta.partitions.items()} == {
        0: (),
        1: (),
        2: ((100, 100),),
        3: ((50, 43),),
        4: ((100, 100),),
        5: ((50, 50),),
    }
    assert {known.output_batch for known in meta.partitions.values()} == {meta.batch}
    assert {known.last for known in meta.partitions.values()} == {(meta.batch, meta.attempt)}
    assert sum(known.totals.held for known in meta.partitions.values()) == len(KEYS)
    assert sum(known.totals.records_in for known in meta.partitions.values()) == len(KEYS)
    assert [known.leader_epoch for known in meta.partitions.values()] == [3, 4, -1, -1, -1, -1]


def test_fewer_partitions_release_what_is_due_at_the_latest_time_of_their_sources(kafka, tmp_path) -> None:
    """0: T 90 000     1: T 80 000, holds 78 100 to 80 000     together: T 90 000, so 1 h after is not reached"""
    here = made(tmp_path)
    kafka.topics = {"in": ("another id", 1), "out": ("id of out", 6)}
    done = move(Request(application=here, name=NAME, partitions=1, recreated=True))
    meta = newest(here).newest()
    assert (done.held, done.released) == (len(KEYS), 0)
    assert (meta.partitions[0].stream_time, meta.next_offsets) == (90_000, {0: 0})
    assert meta.topics["in"] == "another id"
    offsets = newest(here).read("state").column("offset").to_pylist()
    assert len(set(offsets)) == len(KEYS)
    assert meta.partitions[0].raised[-1][0] > max(offsets)
    assert meta.partitions[0].raised[-1][0] >= 100


def test_what_a_merge_releases_is_output_of_its_batch(kafka, tmp_path, monkeypatch) -> None:
    """1 holds records up to 80 000 for 5 s; 0 has read up to 90 000"""
    monkeypatch.setitem(NEWEST, 0, 90_000)
    here = application(tmp_path)
    short = here.operators[NAME].model_copy(
        update={"until": here.operators[NAME].until.model_copy(update={"time_limit": 5_000})}
    )
    monkeypatch.setattr("tests.runtime.repair.test_rescale.application", lambda folder: here.with_operator(NAME, short))
    here = made(tmp_path)
    kafka.topics = {"in": ("another id", 1), "out": ("id of out", 6)}
    done = move(Request(application=here, name=NAME, partitions=1, recreated=True))
    log = newest(here)
    late = [key for key in KEYS if place(key, 2) == 1]
    assert sorted(log.read("emission").column("key").to_pylist()) == sorted(late)
    assert (done.released, done.held) == (len(late), len(KEYS) - len(late))
    assert log.newest().changed[0].counts.emitted == len(late)


def test_keys_that_the_partitioner_does_not_put_where_they_are_refuse_the_move(kafka, tmp_path) -> None:
    here = made(tmp_path, strays=True)
    before = newest(here).version
    with pytest.raises(UserError, match="cannot be rescaled by key"):
        move(Request(application=here, name=NAME, partitions=6))
    assert newest(here).version == before


def test_a_move_that_loses_a_row_is_not_committed_and_leaves_no_file(kafka, tmp_path, monkeypatch) -> None:
    here = made(tmp_path)
    before, files = newest(here).version, sorted(here.lake.folder.rglob("*.parquet"))
    real = rescaling.write_file
    monkeypatch.setattr(rescaling, "write_file", lambda *place, **more: real(*place[:-1], place[-1][1:], **more))
    with pytest.raises(StateError, match="the moved state is not what was held"):
        move(Request(application=here, name=NAME, partitions=6))
    assert newest(here).version == before
    assert sorted(here.lake.folder.rglob("*.parquet")) == files


def test_a_move_that_ends_before_its_commit_has_changed_nothing(kafka, tmp_path) -> None:
    here = made(tmp_path)
    before = newest(here)

    def end(point: str) -> None:
        if point == "before_rescale_commit":
            raise KeyboardInterrupt

    with kill_points.watched(end), pytest.raises(KeyboardInterrupt):
        move(Request(application=here, name=NAME, partitions=6))
    assert newest(here).newest() == before.newest()
    assert move(Request(application=here, name=NAME, partitions=6)).held == len(KEYS)


@pytest.mark.parametrize(
    ("partitions", "recreated", "topics", "problem"),
    [
        (5, False, {}, "does not have that number of partitions"),
        (2, False, {"in": ("id of in", 2)}, "has that number of partitions already"),
        (6, False, {"in": ("another id", 6)}, "was deleted and created again"),
        (6, True, {}, "was not created again"),
        (6, False, {"out": ("id of out", 5)}, "has fewer partitions than the input"),
    ],
)
def test_topics_that_do_not_allow_the_change_are_named_before_anything_is_read(
    kafka, tmp_path, partitions, recreated, topics, problem
) -> None:
    here = made(tmp_path)
    kafka.topics |= topics
    with pytest.raises(UserError, match=problem):
        check_request(Request(application=here, name=NAME, partitions=partitions, recreated=recreated))


def test_an_operator_of_several_steps_is_refused(kafka, tmp_path) -> None:
    steps = [{"name": "held", "kind": "suppression", "until": {"time_limit": "1h"}}]
    here = made(tmp_path)
    several = config_of({"kind": "pipeline", "input": "in", "output": "out", "steps": steps})
    with pytest.raises(UserError, match="several steps"):
        check_request(Request(application=here.with_operator(NAME, several), name=NAME, partitions=6))


def test_output_that_may_not_be_published_refuses_a_change_without_the_former_topic(kafka, tmp_path) -> None:
    here = made(tmp_path, output_batch={0: 1, 1: 1})
    log = OperatorLog.open(
        lake_at(here.lake.folder / NAME), NAME, log_schema(operator_for(here.operators[NAME]).columns), create=False
    )
    emitted = pa.table({"key": pa.array([b"k"], pa.binary())})
    commit_rows(log, 2, {("emission", 0): emitted}, **_as_before(log), output_batch={0: 2})
    kafka.topics = {"in": ("another id", 6), "out": ("id of out", 6)}
    with pytest.raises(UserError, match="perhaps not published"):
        rescale(Request(application=here, name=NAME, partitions=6, recreated=True), lambda: None)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    written = tmp_path / "app.yaml"
    raw = application_settings(tmp_path)
    written.write_text(yaml.safe_dump(raw))
    return written


def application_settings(folder: Path) -> dict[str, object]:
    return {
        "application": "app",
        "lake": str(folder / "lake"),
        "state": str(folder / "state"),
        "keep_output": "forever",
        "kafka": {"bootstrap.servers": "nowhere:1"},
        "operators": {NAME: {"kind": "suppression", "input": "in", "output": "out", "until": {"time_limit": "1h"}}},
    }


def test_the_command_says_what_it_moved(kafka, tmp_path, file) -> None:
    made(tmp_path)
    kafka.topics = {"in": ("another id", 6), "out": ("id of out", 6)}
    asked = ["rescale", str(file), NAME, "--partitions", "6", "--recreated", "--json"]
    done = CliRunner().invoke(main, asked)
    assert done.exit_code == 0, done.output
    told = json.loads(done.stdout)
    assert (told["before"], told["after"], told["held"]) == (2, 6, len(KEYS))


def test_a_living_driver_refuses_the_command(kafka, tmp_path, file) -> None:
    here = made(tmp_path)
    before = newest(here).version
    with living_driver(lake_at(here.lake.folder / NAME)):
        refused = CliRunner().invoke(main, ["rescale", str(file), NAME, "--partitions", "6"])
    assert refused.exit_code == 2
    assert "a driver of the operator is running" in refused.output
    assert newest(here).version == before


def _as_before(log: OperatorLog) -> dict[str, object]:
    known = log.newest()
    names = ("next_offset", "stream_time", "last", "totals")
    fields = {name: {p: getattr(each, name) for p, each in known.partitions.items()} for name in names}
    return {"operator": NAME, "input": "in", "topics": known.topics, **fields}


def test_a_client_of_the_first_partitions_hides_those_that_were_added(monkeypatch) -> None:
    whole = ScriptedKafka()
    whole.topics = {"in": ("id of in", 6), "out": ("id of out", 6)}
    monkeypatch.setattr(
        "tidegate.runtime.kafka.client.KafkaClient.existing_topics",
        lambda _self, names: {name: whole.topic(name) for name in names},
    )
    narrow = FirstPartitions({"bootstrap.servers": "nowhere:1"}, "in", 2)
    assert list(narrow.leaders("in")) == [0, 1]
    assert list(narrow.leaders("out")) == list(range(6))
    assert replace(narrow.topic("in"), leaders={}) == replace(whole.topic("in"), leaders={})
