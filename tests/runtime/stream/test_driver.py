"""The driver of a stream and its tasks, with a real log and real local state, and without Spark: the laws, crashes."""

from __future__ import annotations

import json
import shutil
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

import tidegate.spark
from tests.hypothesis_profile import sized
from tests.lakes import lake_at
from tests.runtime.stream.conftest import records_in
from tests.runtime.stream.plain_spark import Frame, PlainColumns, PlainContext, PlainSpark, partition_of
from tidegate.contracts.config.rules import OperatorRules
from tidegate.contracts.errors import BufferFull, ConfigurationError, EngineError, Fenced, StateError, Unavailable
from tidegate.contracts.records import Row
from tidegate.operators.stream_table_join import StreamTableJoinRules
from tidegate.operators.suppression import SuppressionRules
from tidegate.operators.suppression.strategies import suppression_configs
from tidegate.operators.testing import strategies
from tidegate.operators.testing.cases import cases
from tidegate.operators.testing.laws import Trace
from tidegate.runtime.stream import driver as driver_module
from tidegate.runtime.stream.config import StreamConfig
from tidegate.runtime.stream.driver import StreamDriver
from tidegate.state import earlier_batches
from tidegate.state.delta_log.log_version import LogVersion
from tidegate.state.delta_log.operator_log import OperatorLog

pytestmark = pytest.mark.fast

PARTITIONS = 2
HELD = SuppressionRules(until={"time_limit": "1h"})
few = sized(15)

_nothing = st.just(0), st.just(b""), st.just(False)
row = st.builds(Row, strategies.keys, strategies.values, strategies.timestamps, *_nothing)
rows_of = st.lists(row, min_size=1, max_size=24)
many_rows = st.lists(row, min_size=8, max_size=24)


class Stream:
    """A folder with an operator, and Spark's side of it: how many of its batches are noted."""

    def __init__(self, rules: OperatorRules, folder: Path | None = None, partitions: int = PARTITIONS) -> None:
        self.folder = folder or Path(mkdtemp())
        self.rules, self.partitions, self.noted = rules, partitions, 0
        self.driver: StreamDriver

    def start(self, columns: Any = None, query: str = "query") -> Stream:
        """A new driver has claimed the operator."""
        checkpoint = self.folder / "checkpoint"
        config = StreamConfig(
            rules=self.rules,
            name="updates",
            lake=self.folder / "lake",
            state=self.folder / "state",
            checkpoint=checkpoint,
            partitions=self.partitions,
            keep_output="forever",
        )
        self.driver = StreamDriver(PlainSpark(PlainContext(query)), config, columns or PlainColumns())
        self.driver.claim()
        checkpoint.mkdir(exist_ok=True)
        if not (checkpoint / "metadata").exists():
            (checkpoint / "metadata").write_text(json.dumps({"id": query}))
        return self

    def batch(self, rows: Sequence[Row]) -> None:
        """Spark has handed its next batch over, and noted it."""
        self.driver.batch(rows, self.noted)  # type: ignore[arg-type]
        self.noted += 1

    def log(self) -> OperatorLog:
        """The log as it is now."""
        return LogVersion.at(lake_at(self.folder / "lake" / "updates"), None)

    def outputs(self) -> dict[str, list[dict[str, Any]]]:
        """What the operator did, whatever the batches were."""
        return {
            kind: self.log().read(kind).drop_columns(["batch", "seq"]).to_pylist()
            for kind in ("emission", "late", "rejected")
        }

    def seen(self, partition: int, trace: Trace) -> Trace:
        """The log's trace of a partition, with what only a state can tell taken over."""

        def rows(kind: str, like: list[dict[str, Any]]) -> list[dict[str, Any]]:
            found = self.log().read(kind, partition).to_pylist()
            return [{name: row[name] for name in like[0]} for row in found] if like else found

        meta = self.log().newest()
        assert meta is not None
        known = meta.partitions[partition]
        return replace(
            trace,
            emissions=rows("emission", trace.emissions),
            late=rows("late", trace.late),
            rejected=rows("rejected", trace.rejected),
            applied=known.totals.applied,
            superseded=known.totals.superseded,
            stream_time=known.stream_time,
        )


def foretold(rules: OperatorRules, rows: Sequence[Row], partition: int) -> Trace:
    """What the reference says of a partition: its records are counted from 0."""
    own = [row for row in rows if partition_of(row.key, PARTITIONS) == partition]
    history_of = [row._replace(offset=place) for place, row in enumerate(own)]
    return cases()["suppression"].reference(rules, history_of, 0)


def cut(rows: Sequence[Row], cuts: set[int]) -> list[Sequence[Row]]:
    """The rows in batches."""
    bounds = [0, *sorted(place for place in cuts if 0 < place < len(rows)), len(rows)]
    return [rows[first:end] for first, end in pairwise(bounds)]


def without_stops(rules: Any) -> bool:
    """True for rules that never stop an operator."""
    return rules.buffer is None or rules.buffer.when_full != "shut_down"


def rules_of(config: Any) -> SuppressionRules:
    """The rules of a configuration; the clock is the wall's, so none of them asks for it."""
    names = set(SuppressionRules.model_fields) - {"max_ahead"}
    return SuppressionRules.model_construct(**{name: getattr(config, name) for name in names})


rules = suppression_configs().map(rules_of).filter(without_stops)


@few
@given(rules=rules, rows=rows_of, cuts=strategies.cuts, size=st.integers(1, 5))
def test_laws_1_and_8_a_stream_equals_the_reference_and_counts_every_record_once(rules, rows, cuts, size):
    stream = Stream(rules).start(PlainColumns(size))
    for piece in cut(rows, cuts):
        stream.batch(piece)
    for partition in range(PARTITIONS):
        expected = foretold(rules, rows, partition)
        assert stream.seen(partition, expected) == expected
    metas = earlier_batches.metas(stream.log())
    assert all(change.counts.balanced for meta in metas for change in meta.changed.values())
    assert records_in(metas) == len(rows)
    shutil.rmtree(stream.folder)


@few
@given(rules=rules, rows=rows_of, cuts=strategies.cuts, data=st.data())
def test_laws_2_3_and_5_cuts_restarts_crashes_and_compactions_change_nothing(rules, rows, cuts, data):
    calm, rough = Stream(rules).start(), Stream(rules).start()
    calm.batch(rows)
    for piece in cut(rows, cuts):
        older = data.draw(st.booleans()) and keep(rough)
        rough.batch(piece)
        mishap(
            rough, piece, older, data.draw(st.sampled_from(["none", "restart", "rebuild", "again", "older", "compact"]))
        )
    rough.batch([])
    assert rough.outputs() == calm.outputs()
    for stream in (calm, rough):
        shutil.rmtree(stream.folder)


def keep(stream: Stream) -> bool:
    """A copy of the local state is beside it."""
    kept = stream.folder / "kept"
    shutil.rmtree(kept, ignore_errors=True)
    if (stream.folder / "state").exists():
        shutil.copytree(stream.folder / "state", kept)
    return kept.exists()


def mishap(stream: Stream, piece: Sequence[Row], older: bool, what: str) -> None:
    """Something has happened after a batch that must not be noticed."""
    if what == "compact":
        stream.driver._compact()
    elif what == "again":  # killed between the commit and Spark's note of it
        stream.noted -= 1
        stream.start().batch(piece)
    elif what == "rebuild":
        shutil.rmtree(stream.folder / "state")
        stream.start()
    elif what == "older" and older:
        shutil.rmtree(stream.folder / "state")
        shutil.copytree(stream.folder / "kept", stream.folder / "state")
    elif what == "restart":
        stream.start()


@few
@given(rows=many_rows, cuts=strategies.cuts, bound=st.integers(1, 3))
def test_a_full_buffer_stops_before_the_record_and_continues_there(rows, cuts, bound):
    full = SuppressionRules(buffer={"max_keys": bound, "when_full": "shut_down"})
    ample = SuppressionRules(buffer={"max_keys": 100, "when_full": "shut_down"})
    stream, stopped = Stream(full).start(), False
    for piece in cut(rows, cuts):
        try:
            stream.batch(piece)
        except BufferFull as error:
            assert "continues there" in error.remedy
            stopped, stream.rules = True, ample
            stream.start().batch(piece)
    assume(stopped)
    for partition in range(PARTITIONS):
        expected = foretold(ample, rows, partition)
        assert stream.seen(partition, expected) == expected
    shutil.rmtree(stream.folder)


@pytest.mark.parametrize("left", ["state", "checkpoint"])
def test_a_stream_that_has_run_before_never_creates_a_new_log(tmp_path, left):
    stream = Stream(HELD, tmp_path).start()
    stream.batch([Row(b"k", b"v", 1, 0)])
    shutil.rmtree(tmp_path / {"state": "checkpoint", "checkpoint": "state"}[left])
    (tmp_path / "lake").rename(tmp_path / "unmounted")
    (tmp_path / "lake").mkdir()
    with pytest.raises(Unavailable, match="has run before, but its log is not there") as refused:
        stream.start()
    assert str(tmp_path / left) in refused.value.value
    assert "a new name" in refused.value.remedy
    assert list((tmp_path / "lake").iterdir()) == []


def test_a_stream_whose_lake_disappears_creates_no_new_log(tmp_path, no_pauses):
    stream = Stream(HELD, tmp_path).start()
    stream.batch([Row(b"k", b"v", 1, 0)])
    (tmp_path / "lake").rename(tmp_path / "unmounted")
    with pytest.raises(Unavailable, match="the lake is unavailable"):
        stream.batch([Row(b"k", b"v", 2, 1)])
    assert not list(tmp_path.glob("lake/updates/_delta_log/*"))


@pytest.fixture
def no_pauses(monkeypatch):
    """Tries follow each other at once."""
    monkeypatch.setattr(driver_module, "PAUSES_S", (0.0, 0.0, 0.0))


class Failing(PlainColumns):
    """Jobs fail so many times, after their tasks have run."""

    def __init__(self, times: int) -> None:
        super().__init__()
        self.left = times

    def prepared(self, rows, partitions, tasks):
        frame, prepare = super().prepared(rows, partitions, tasks), self

        class Frame:
            def mapInArrow(self, work, schema):
                self.job = frame.mapInArrow(work, schema)
                return self

            def collect(self):
                found = self.job.collect()
                prepare.left -= 1
                if prepare.left >= 0:
                    raise OSError("an executor is lost")
                return found

        return Frame()


def test_a_failed_attempt_leaves_no_file_and_the_next_one_starts_from_a_new_claim(tmp_path, no_pauses):
    stream = Stream(HELD, tmp_path).start(Failing(2))
    stream.batch([Row(b"a", b"1", 0, 0), Row(b"b", b"1", 1, 0)])
    assert [meta.action for meta in earlier_batches.metas(stream.log())] == ["claim", "claim", "claim", "batch"]
    folder = stream.log().place.folder
    named = {file.path for kind in ("meta", "state", "emission") for file in stream.log().data_files(kind)}
    assert {str(path.relative_to(folder)) for path in folder.glob("data/*")} == named
    assert sum(known.totals.held for known in stream.driver.newest.partitions.values()) == 2


def test_a_batch_that_always_fails_ends_with_its_error(tmp_path, no_pauses):
    stream = Stream(HELD, tmp_path).start(Failing(9))
    with pytest.raises(EngineError, match="the Spark job failed"):
        stream.batch([Row(b"a", b"1", 0, 0)])
    stream.start().batch([Row(b"a", b"1", 0, 0)])


class Spread(PlainColumns):
    """The rows of a partition are in two tasks."""

    def prepared(self, rows, partitions, tasks):
        frame = super().prepared(rows, partitions, 1)
        half = frame.tasks[0].num_rows // 2
        return Frame([frame.tasks[0].slice(0, half), frame.tasks[0].slice(half)], 3)


def test_a_partition_whose_rows_are_in_two_tasks_stops_the_query_and_nothing_is_committed(tmp_path):
    stream = Stream(HELD, tmp_path).start(Spread())
    with pytest.raises(StateError, match="spread over tasks"):
        stream.batch([Row(b"a", b"%d" % place, place, 0) for place in range(4)])
    assert [meta.action for meta in earlier_batches.metas(stream.log())] == ["claim"]


def test_a_second_driver_fences_the_first(tmp_path, no_pauses):
    first = Stream(HELD, tmp_path).start()
    second = Stream(HELD, tmp_path).start()
    with pytest.raises(Fenced):
        first.batch([Row(b"a", b"1", 0, 0)])
    second.batch([Row(b"a", b"2", 0, 0)])
    assert records_in(earlier_batches.metas(second.log())) == 1


def test_a_batch_without_rows_is_committed_too(tmp_path):
    stream = Stream(HELD, tmp_path).start()
    stream.batch([])
    stream.batch([Row(b"a", b"1", 0, 0)])
    assert stream.driver.newest.query_batch == 1


def test_a_deleted_checkpoint_and_a_different_query_are_refused(tmp_path):
    stream = Stream(HELD, tmp_path).start()
    stream.batch([Row(b"a", b"1", 0, 0)])
    shutil.rmtree(tmp_path / "checkpoint")
    with pytest.raises(StateError, match="checkpoint folder is gone"):
        stream.start()
    (tmp_path / "checkpoint").mkdir()
    (tmp_path / "checkpoint" / "metadata").write_text('{"id": "other"}')
    with pytest.raises(StateError, match="another Spark query"):
        stream.start()
    (tmp_path / "checkpoint" / "metadata").write_text("cut sho")
    with pytest.raises(StateError, match="does not name its query"):
        stream.start()


def test_a_different_number_of_partitions_is_refused(tmp_path):
    Stream(HELD, tmp_path).start()
    with pytest.raises(StateError, match="a different number of partitions") as refused:
        Stream(HELD, tmp_path, partitions=3).start()
    assert "partitions=2" in refused.value.remedy


@pytest.mark.parametrize("name", ["state", "checkpoint"])
def test_a_url_is_not_accepted_as_a_stream_s_folder(name):
    folders = {"lake": "lake", "state": "state", "checkpoint": "checkpoint"} | {name: "s3://bucket/folder"}
    with pytest.raises(ConfigurationError) as refused:
        tidegate.spark.start(None, HELD, **folders, key="k", value="v", timestamp="t", order_by="o")
    [problem] = refused.value.problems
    assert (problem.where, problem.value) == (name, "s3://bucket/folder")
    assert "name a folder" in problem.remedy


def test_join_rules_on_a_data_frame_are_refused_with_the_remedy():
    rules = StreamTableJoinRules(table="prices", join="left")
    with pytest.raises(ConfigurationError) as refused:
        tidegate.spark.start(None, rules, lake="lake", key="k", value="v", timestamp="t", order_by="o")
    [problem] = refused.value.problems
    assert (problem.where, problem.value) == ("rules", rules)
    assert "a table is lacking" in problem.cause
    assert ".join(tidegate.spark.table(" in problem.remedy
