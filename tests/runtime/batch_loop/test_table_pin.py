"""The table that an operator reads: pinned at a version, its replica caught up from the files that commits added."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from tests.lakes import lake_at
from tests.metadata import described, small_meta
from tests.state.logs import HOUR_MS, MiniDriver, files, meta, new_log, rows
from tests.state.tally_operator import Tally, TallyState
from tidegate.contracts.batch_metadata import BatchMeta, Counts, Pin
from tidegate.contracts.config.base import read
from tidegate.contracts.config.operator_config import OperatorConfig
from tidegate.contracts.config.rules import TableRead
from tidegate.contracts.errors import EngineError, StartOver, StateError, Unavailable, UserError
from tidegate.contracts.event_time import ALWAYS, NEVER
from tidegate.contracts.records import Records, Row
from tidegate.kernels.memory.storage import MemoryStorage
from tidegate.operators.registry import operator_for
from tidegate.operators.table_history import TableHistory, TableHistoryConfig
from tidegate.operators.table_history.state import TableHistoryState
from tidegate.runtime.batch_loop.table_pin import PinnedTable, PinnedTables, TableSource
from tidegate.runtime.batch_loop.table_stream_alignment import Gates, Renewal
from tidegate.runtime.configuration.application import config_hash, settings_of
from tidegate.runtime.task.messages import PartitionPlan, PartitionResult, TablePlan
from tidegate.state import leases
from tidegate.state.alignment_decisions import Lease
from tidegate.state.local.local_state import LocalState
from tidegate.state.local.recovery import PartitionLog, Recovered, recover
from tidegate.state.protocol_decisions import RecoveryMethod, Wanted
from tidegate.state.upkeep.compaction import Kept, compact

pytestmark = pytest.mark.fast

READER = small_meta(
    operator="reader", table_id="r", epoch=7, batch=3, action="claim", input="records", next_offset={0: 0}
)
PLAN = PartitionPlan(
    partition=0,
    action="batch",
    start=0,
    end=1,
    stream_time=-1,
    advance_to=-1,
    wanted=Wanted(epoch=7, batch=4, last=None),
    producer=None,
)


def source_of(plan: TablePlan) -> PartitionLog:
    """Partition 0 of the table's log, as a task reads it."""
    return PartitionLog(log=plan.log, version=plan.version, partition=0, stream_time=plan.stream_time, tail=plan.tail)


RESULT = PartitionResult(
    partition=0,
    action="batch",
    next_offset=0,
    stream_time=100,
    counts=Counts(),
    measures={},
    files=(),
    transaction=None,
)


class Table(MiniDriver):
    """The service of the table: as the tests of the state room drive one, its commits saying what the reader needs."""

    read_to = 0

    def commit(self, changes: pa.Table, attempt: str, stream_time: int) -> None:
        """The changes are the next batch."""
        said = {
            "input": "in",
            "next_offset": {0: self.read_to},
            "last": {0: (self.batch + 1, attempt)},
            "stream_time": {0: stream_time},
        }
        batch = meta(self.log, self.batch + 1, epoch=self.epoch, attempt=attempt, counts={0: Counts()}, **said)
        self.log.commit(batch, files(self.log, batch, {("state", 0): changes} if changes.num_rows else {}))
        self.batch += 1
        self.last, self.stream_time = (self.batch, attempt), stream_time

    def compact(self) -> None:
        """The log is compacted: what was deleted is forgotten."""
        self.batch += 1
        newest = self.log.newest()
        assert newest is not None
        compaction = replace(newest, batch=self.batch, attempt=f"c{self.batch}", action="compaction", changed={})
        compact(self.log, compaction, Kept(slot=("key",)), rewind_window_ms=HOUR_MS)


@pytest.fixture
def table(tmp_path: Path) -> Table:
    made = Table(tmp_path)
    made.run([(1, True)])
    return made


def pinned(table: Table, name: str = "tally", **more: object) -> PinnedTable:
    """A reader that has opened the table."""
    config = OperatorConfig(kind="tally", input="in")
    return TableSource(reader="reader", name=name, config=config, log=table.log.lake, **more).open(READER)


def replica(root: Path, plan: TablePlan) -> tuple[Recovered, dict[int, int]]:
    """As a task makes it; and what it holds."""
    token = (plan.wanted.epoch, plan.wanted.batch)
    with LocalState.lock(root / "replicas", 0, operator=plan.name, table_id=plan.table_id, token=token) as local:
        made = recover(local, Tally(), plan.wanted, source_of(plan))
        assert isinstance(made.state, TallyState)
        return made, made.state.held()


def use(reader: PinnedTable, clock_ms: int = 0, waiting: int = 0) -> None:
    """A batch of the reader has used the pin in partition 0; so many records then wait for the table."""
    result = replace(RESULT, measures={"waiting_records_now": waiting})
    reader.note_used([replace(PLAN, tables={"tally": reader.plan(PLAN)})], [result], clock_ms)


def test_a_pin_is_the_newest_version_until_the_next_pin(table: Table) -> None:
    reader = pinned(table)
    first = reader.pin()
    table.run([(2, True)])
    inputs = PinnedTables([reader]).inputs
    assert (reader.version, inputs) == (first, {"tally": Pin(first, table.log.table_id)})
    assert BatchMeta.from_json(replace(READER, inputs=inputs).to_json()).inputs == inputs
    assert reader.pin() == first + 1 == table.log.version
    assert reader.stream_time(0) == table.stream_time


def test_a_replica_is_rebuilt_once_then_caught_up_from_what_commits_added(table: Table, tmp_path: Path) -> None:
    reader = pinned(table)
    assert replica(tmp_path, reader.plan(PLAN))[0].plan.method is RecoveryMethod.REBUILD
    table.run([(1, False), (3, True)])
    table.run([(4, True)])
    reader.pin()
    made, held = replica(tmp_path, reader.plan(PLAN))
    assert (made.plan.method, held) == (RecoveryMethod.CATCH_UP, {3: 1, 4: 1})
    assert replica(tmp_path, reader.plan(PLAN))[0].plan.method is RecoveryMethod.GO_ON


def test_a_replica_applies_deletes_that_a_compaction_removed(table: Table, tmp_path: Path) -> None:
    """put 1 --- replica --- delete 1 --- compaction --- put 2 --- replica: 1 is gone from it, too"""
    reader = pinned(table)
    replica(tmp_path, reader.plan(PLAN))
    table.run([(1, False)])
    table.compact()
    table.run([(2, True)])
    reader.pin()
    made, held = replica(tmp_path, reader.plan(PLAN))
    assert (made.plan.method, held) == (RecoveryMethod.CATCH_UP, {2: 1})


@pytest.mark.parametrize("starts", [False, True])
def test_a_pin_at_a_foreign_optimize_stands_for_the_batch_below_it(table: Table, tmp_path: Path, starts: bool) -> None:
    reader = pinned(table)
    replica(tmp_path, reader.plan(PLAN))
    table.run([(1, False), (2, True)])
    newest = table.log.version
    DeltaTable(str(table.log.place.folder)).optimize.compact()
    reader = pinned(table) if starts else reader
    assert reader.pin() == newest + 1
    assert (PinnedTables([reader]).inputs["tally"].version, reader.stream_time(0)) == (newest + 1, table.stream_time)
    caught_up, rebuilt = (replica(root, reader.plan(PLAN)) for root in (tmp_path, tmp_path / "another machine"))
    assert [made.plan.method for made, _ in (caught_up, rebuilt)] == [RecoveryMethod.CATCH_UP, RecoveryMethod.REBUILD]
    assert caught_up[1] == rebuilt[1] == {2: 1}


def test_a_returning_reader_catches_up_from_earlier_entries(table: Table, tmp_path: Path) -> None:
    replica(tmp_path, pinned(table).plan(PLAN))
    for key in range(2, 6):
        table.run([(key, True)])
    made, held = replica(tmp_path, pinned(table).plan(PLAN))
    assert (made.plan.method, held) == (RecoveryMethod.CATCH_UP, dict.fromkeys(range(1, 6), 1))


def test_a_replica_whose_files_were_vacuumed_is_rebuilt(table: Table, tmp_path: Path) -> None:
    reader = pinned(table)
    replica(tmp_path, reader.plan(PLAN))
    table.run([(2, True)])
    added = table.log.data_files("state")
    table.compact()
    for file in added:
        (table.log.place.folder / file.path).unlink()
    reader.pin()
    made, held = replica(tmp_path, reader.plan(PLAN))
    assert (made.plan.method, held) == (RecoveryMethod.REBUILD, {1: 1, 2: 1})
    assert "vacuumed" in made.plan.description


def test_a_plan_contains_only_commits_since_the_last_use(table: Table) -> None:
    reader = pinned(table)
    for key in range(2, 40):
        table.run([(key, True)])
    reader.pin()
    use(reader)
    table.run([(40, True)])
    reader.pin()
    assert len(reader.plan(PLAN).tail) < 12


def test_an_older_reader_does_not_set_a_replica_back(table: Table, tmp_path: Path) -> None:
    old = pinned(table).plan(PLAN)
    table.run([(2, True)])
    replica(tmp_path, pinned(table).plan(PLAN))
    with pytest.raises(StateError, match="newer attempt"):
        replica(tmp_path, old)


def test_waiting_records_continue_when_the_table_has_caught_up_or_the_wait_is_over(table: Table) -> None:
    """T 100, grace 10: the table's topic ended at 1 when a record of 90 was due, and the table has read none of it."""
    reader = pinned(table, topics=("in",), gates=Gates(read=TableRead("table", 10, 500)))
    held = described(READER, active_clock={0: 1_000}, stream_time={0: 100}, totals={0: Counts(held=1)})
    assert reader.gates is not None
    assert reader.partitions_to_resume(held, 1_000) == {0}, "not known yet"
    reader.gates.note_ends(held, [{0: 1}])
    assert reader.plan(PLAN).open_until == NEVER
    use(reader, 1_000, waiting=1)
    assert reader.partitions_to_resume(held, 1_499) == set()
    assert reader.partitions_to_resume(held, 1_500) == {0}
    use(reader, 1_500, waiting=1)
    assert reader.partitions_to_resume(held, 9_999) == set()
    table.read_to = 1
    table.run([(2, True)])
    reader.pin()
    assert reader.partitions_to_resume(held, 9_999) == {0}
    assert reader.plan(PLAN).open_until == ALWAYS
    assert pinned(table).partitions_to_resume(held, 9_999) == set(), "one that holds nothing"


def test_records_go_on_when_the_table_has_caught_up_for_which_they_wait(table: Table, tmp_path: Path) -> None:
    """T 100, grace 10: two steps read a table each; records of the second one wait for its own."""
    prices = Table(tmp_path / "prices")
    prices.run([(1, True)])
    gates = [Gates(read=TableRead(name, 10, None, f"with_{name}")) for name in ("tally", "prices")]
    readers = [pinned(table, gates=gates[0]), pinned(prices, name="prices", gates=gates[1])]
    tables, held = PinnedTables(readers), described(READER, stream_time={0: 100}, totals={0: Counts(held=1)})
    for each, end in zip(gates, (0, 1), strict=True):
        each.note_ends(held, [{0: end}])
    [plan] = tables.pinned([PLAN])
    assert [plan.tables[name].open_until for name in ("tally", "prices")] == [ALWAYS, NEVER]
    tables.note_used([plan], [replace(RESULT, measures={"with_prices.waiting_records_now": 1})], 0)
    assert (tables.waiting(), tables.nothing_waits(held)) == ({"prices": [0]}, False)
    table.run([(2, True)])
    readers[0].pin()
    assert tables.partitions_to_resume(held, 9_999) == set()
    prices.read_to = 1
    prices.run([(2, True)])
    readers[1].pin()
    assert tables.partitions_to_resume(held, 9_999) == {0}


def test_the_lease_of_a_step_behind_others_follows_the_time_of_that_step(table: Table) -> None:
    lease = Renewal(reader="reader", log=table.log.lake, read=TableRead("tally", 10, None, "joined", has_own_time=True))
    lease.first(
        described(READER, stream_time={0: 100}, reader_time={0: {"tally": 60}}, needs={0: {"tally": 70}}), 1_000
    )
    assert leases.read(table.log.lake, 0)["reader"].needs == {0: 50}
    lease.first(described(READER, stream_time={0: 100}), 2_000)
    assert leases.read(table.log.lake, 0)["reader"].needs == {0: -11}, "no record has reached the step yet"


def test_a_reader_writes_its_lease_before_the_first_pin_and_while_it_runs(table: Table) -> None:
    lease = Renewal(reader="reader", log=table.log.lake, read=TableRead("tally", 10, None))
    source = TableSource(
        reader="reader", name="tally", config=OperatorConfig(kind="tally", input="in"), log=table.log.lake, lease=lease
    )
    source.open(READER, 1_000)
    assert leases.read(table.log.lake, 0) == {"reader": Lease(7, 1_000, {0: -11})}
    moved = described(READER, stream_time={0: 100}, needs={0: {"tally": 40}})
    lease.renew(moved, 1_999)
    assert leases.read(table.log.lake, 0)["reader"].needs == {0: -11}, "once a second at most"
    lease.renew(moved, 2_000)
    assert leases.read(table.log.lake, 0)["reader"] == Lease(7, 2_000, {0: 40})
    lease.renew(moved, 11_999)
    assert leases.read(table.log.lake, 0)["reader"].clock == 2_000
    lease.renew(moved, 12_000)
    assert leases.read(table.log.lake, 0)["reader"].clock == 12_000, "every ten at least"


def test_a_replica_is_read_with_the_floor_of_the_pin(tmp_path: Path) -> None:
    table = History(tmp_path, "1h")
    table.put((b"A", 0), (b"B", 1), (b"C", 9))
    newest = table.log.newest()
    assert newest is not None
    reader = TableSource(reader="reader", name="facts", config=table.config, log=table.log.lake).open(READER)
    assert reader.plan(PLAN).floor is None, "of a log that does not tell it"
    reader.meta = described(newest, floor={0: 5})
    assert reader.plan(PLAN).floor == 5


def test_a_reader_waits_for_a_table_without_a_log(tmp_path: Path) -> None:
    config = OperatorConfig(kind="tally", input="in")
    source = TableSource(reader="reader", name="tally", config=config, log=lake_at(tmp_path / "nothing"))
    with pytest.raises(Unavailable, match="no log yet"):
        source.open(READER)
    new_log(tmp_path / "nothing")
    with pytest.raises(Unavailable, match="no log yet"):
        source.open(READER)


def test_different_numbers_of_partitions_are_refused(table: Table) -> None:
    source = TableSource(reader="r", name="tally", config=pinned(table).config, log=table.log.lake)
    with pytest.raises(UserError, match="different numbers of partitions") as refused:
        source.open(described(READER, next_offset={0: 0, 1: 0}))
    assert refused.value.value == "2 and 1"


def test_a_running_reader_starts_over_when_its_table_was_rescaled(table: Table) -> None:
    reader = pinned(table)
    newest = table.log.newest()
    assert newest is not None
    grown = described(newest, batch=newest.batch + 1, attempt="r", epoch=newest.epoch + 1, next_offset={0: 0, 1: 0})
    table.log.commit(replace(grown, action="rescale", changed={}), [])
    with pytest.raises(StartOver, match="was rescaled"):
        reader.pin()


def test_a_log_older_than_its_readers_last_version_stops_them(table: Table) -> None:
    source = TableSource(reader="r", name="tally", config=pinned(table).config, log=table.log.lake)
    with pytest.raises(StateError, match="older than what r has read"):
        source.open(replace(READER, inputs={"tally": Pin(table.log.version + 1, table.log.table_id)}))


@pytest.mark.parametrize("batches", [0, 1, 8], ids=["shorter", "as long", "longer"])
def test_a_different_log_under_the_table_s_name_is_refused_at_start(table: Table, tmp_path: Path, batches: int) -> None:
    table.run([(2, True)])
    pin = Pin(table.log.version, table.log.table_id)
    replace_by_another(table, tmp_path, batches)
    source = TableSource(reader="r", name="tally", config=OperatorConfig(kind="tally", input="in"), log=table.log.lake)
    with pytest.raises(StateError, match="not the log that r has read") as refused:
        source.open(replace(READER, inputs={"tally": pin}))
    assert pin.table_id in str(refused.value.value)
    assert "give the join a new name" in refused.value.remedy


def test_a_reader_of_a_release_without_table_ids_is_accepted_and_records_the_id(table: Table) -> None:
    older = json.loads(READER.to_json()) | {"inputs": {"tally": table.log.version}}
    source = TableSource(reader="r", name="tally", config=OperatorConfig(kind="tally", input="in"), log=table.log.lake)
    pin = source.open(BatchMeta.from_json(json.dumps(older)))
    assert PinnedTables([pin]).inputs == {"tally": Pin(table.log.version, table.log.table_id)}


def test_a_log_that_another_program_changed_stops_its_readers(table: Table) -> None:
    reader = pinned(table)
    foreign = rows("x").append_column("kind", pa.array(["state"])).append_column("partition", pa.array([0], pa.int32()))
    write_deltalake(str(table.log.place.folder), foreign, mode="append", schema_mode="merge")
    with pytest.raises(StateError, match="another program changed data"):
        reader.pin()


def replace_by_another(table: Table, tmp_path: Path, batches: int) -> None:
    """The table's service has begun a new log in the place of the old one, and that has so many batches and a claim."""
    other = Table(tmp_path / "other")
    other.run([(1, True)])
    for key in range(batches):
        other.run([(key, True)])
    table.log.place.folder.rename(tmp_path / "former")
    other.log.place.folder.rename(table.log.place.folder)


@pytest.mark.parametrize("batches", [0, 1, 8], ids=["shorter", "as long", "longer"])
def test_a_re_created_table_stops_its_reader(table: Table, tmp_path: Path, batches: int) -> None:
    table.run([(2, True)])
    reader = pinned(table)
    read = replace(READER, inputs=PinnedTables([reader]).inputs)
    replace_by_another(table, tmp_path, batches)
    with pytest.raises(StateError, match="not the log that reader has read"):
        try:
            reader.pin()
        except EngineError:
            reader.source.open(read)


def test_readers_continue_with_a_table_restored_from_a_copy(table: Table, tmp_path: Path) -> None:
    reader = pinned(table)
    shutil.copytree(table.log.place.folder, tmp_path / "copy", copy_function=shutil.copyfile)
    shutil.rmtree(table.log.place.folder)
    (tmp_path / "copy").rename(table.log.place.folder)
    with pytest.raises(EngineError, match="no longer the one that was pinned"):
        reader.pin()
    again = reader.source.open(replace(READER, inputs=PinnedTables([reader]).inputs))
    assert again.pin() == table.log.version


def test_a_replica_is_never_built_from_a_different_log(table: Table, tmp_path: Path) -> None:
    """pin --- the table is begun anew --- a task makes the replica"""
    plan = pinned(table).plan(PLAN)
    replace_by_another(table, tmp_path, 8)
    with pytest.raises(StateError, match="not the log that the driver of its reader has read"):
        replica(tmp_path, plan)


class History:
    """The service of a table history with one key, whose retention may change while it runs."""

    def __init__(self, root: Path, retention: str) -> None:
        self.log, self.batch, self.offset = new_log(root / "lake" / "facts"), 0, 0
        self.last: tuple[int, str] | None = None
        self.storage = MemoryStorage(TableHistory.layout)
        self.go_on_under(retention)

    def go_on_under(self, retention: str) -> None:
        """The service claims with that retention; what it keeps stays."""
        self.config = read(TableHistoryConfig, {"kind": "table_history", "input": "in", "history_retention": retention})
        self.state = TableHistory(self.config).open(self.storage)
        self._commit("claim", None)

    def put(self, *versions: tuple[bytes, int]) -> None:
        """A batch of (value, valid from)."""
        listed = [Row(b"k", value, hours * HOUR_MS, self.offset + at) for at, (value, hours) in enumerate(versions)]
        self.offset += len(listed)
        self._commit("batch", self.state.step(Records.from_rows(listed), 0).changes)

    def _commit(self, action: str, changes: pa.Table | None) -> None:
        self.batch, attempt = self.batch + 1, f"a{self.batch + 1}"
        if changes is not None:
            self.last = (self.batch, attempt)
        said = meta(
            self.log,
            self.batch,
            attempt=attempt,
            action=action,
            config=config_hash(self.config),
            settings=settings_of(self.config),
            input="in",
            next_offset={0: 0},
            last={} if self.last is None else {0: self.last},
            stream_time={0: self.state.stream_time},
            counts={} if changes is None else {0: Counts()},
        )
        self.log.commit(said, [] if changes is None else files(self.log, said, {("state", 0): changes}))

    def read_by(self, reader: PinnedTable, root: Path) -> TableHistoryState:
        """The replica that a task of the reader makes at the pin."""
        plan = reader.plan(PLAN)
        operator = operator_for(plan.config)  # type: ignore[arg-type]
        with LocalState.lock(
            root / "replicas", 0, operator=plan.name, table_id=plan.table_id, token=(plan.wanted.epoch, self.batch)
        ) as local:
            made = recover(local, operator, plan.wanted, source_of(plan))
            assert isinstance(made.state, TableHistoryState)
            return made.state


def values(state: TableHistoryState, *hours: int) -> list[bytes | None]:
    """The key's values as of those hours."""
    found = [state.get(b"k", as_of=at * HOUR_MS) for at in hours]
    return [None if version is None else version.value for version in found]


def test_a_running_reader_uses_the_table_s_changed_retention(tmp_path: Path) -> None:
    table = History(tmp_path, "1h")
    reader = TableSource(reader="reader", name="facts", config=table.config, log=table.log.lake).open(READER)
    table.put((b"A", 0), (b"B", 1))
    reader.pin()
    assert values(table.read_by(reader, tmp_path), 0, 1) == [b"A", b"B"]
    table.go_on_under("3h")
    table.put((b"C", 2), (b"D", 3), (b"E", 4))
    reader.pin()
    assert values(table.read_by(reader, tmp_path), 1, 2, 3, 4) == [b"B", b"C", b"D", b"E"]
    table.go_on_under("1h")
    reader.pin()
    assert values(table.read_by(reader, tmp_path), 2, 3, 4) == [None, b"D", b"E"]


def test_a_reader_uses_the_table_s_configuration_in_the_log_not_that_of_its_file(tmp_path: Path) -> None:
    table = History(tmp_path, "1h")
    in_file = read(TableHistoryConfig, settings_of(table.config) | {"history_retention": "3h"})
    reader = TableSource(reader="reader", name="facts", config=in_file, log=table.log.lake).open(READER)
    assert reader.plan(PLAN).config == table.config
