"""A table and its join meet the same whatever the timing: the law of alignment, on the operators themselves.

One partition: a table of one or two topics with retention R, a join with grace g < R. The two services are played by
their decisions and their operators, in any order, each as far behind as it likes; restarts, replicas that are made
again, compactions and leases that are stale come in between. `docs/protocol.md`, "A table and its readers", has the
rules.
"""

from __future__ import annotations

from random import Random
from typing import NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.hypothesis_profile import many
from tidegate.contracts.event_time import ALWAYS, NEVER
from tidegate.contracts.records import Records, Row
from tidegate.kernels.memory.storage import MemoryStorage
from tidegate.operators.stream_table_join import StreamTableJoin, StreamTableJoinConfig
from tidegate.operators.table_history import TableHistory, TableHistoryConfig
from tidegate.operators.testing.laws import small
from tidegate.state.alignment_decisions import (
    Gate,
    Lease,
    Offsets,
    has_read,
    needed,
    seen,
)

pytestmark = pytest.mark.fast

GRACE, RETENTION, TOPICS = 10, 15, 2
TABLE = TableHistory(TableHistoryConfig.model_validate({"input": "t", "history_retention": f"{RETENTION}ms"}))
JOIN = StreamTableJoin(
    StreamTableJoinConfig.model_validate({"input": "s", "table": "t", "join": "left", "grace": f"{GRACE}ms"})
)


class Produced(NamedTuple):
    """A record of the stream or of the table, in the order in which all were produced. `topic`: of the table's."""

    of_table: bool
    key: bytes
    timestamp: int
    value: bytes
    topic: int = 0


def drawn(chance: Random) -> list[Produced]:
    """Records of the stream and of the table's topics, out of order, none later than the law allows."""
    time, events, topics = 0, [], chance.choice((1, 2))
    for number in range(chance.randrange(5, 40)):
        time += chance.choice((0, 1, 1, 2, 30))
        key, value = chance.choice((b"a", b"b")), b"%d" % number
        events.append((time + chance.uniform(0, 0.99 * GRACE), Produced(False, key, time, value)))
        if chance.random() < 0.7:
            since = max(0, time - chance.randint(0, 2))
            key = chance.choice((b"a", b"b"))
            version = Produced(True, key, since, b"w" + value, chance.randrange(topics))
            events.append((since + chance.uniform(-5, 0.99 * GRACE), version))
    return within_the_law([event for _, event in sorted(events, key=lambda event: event[0])])


def within_the_law(log: list[Produced]) -> list[Produced]:
    """The records without those of the table that are late for it, or for a record that they are to meet.

    Of a key and a time only one topic has versions: which of two topics is read first is no matter of the law.
    """
    kept, stream, table, topics = [], NEVER, NEVER, dict[tuple[bytes, int], int]()
    for event in log:
        if event.of_table and (event.timestamp <= stream - GRACE or event.timestamp < table - RETENTION):
            continue
        if event.of_table and topics.setdefault((event.key, event.timestamp), event.topic) != event.topic:
            continue
        kept.append(event)
        stream = stream if event.of_table else max(stream, event.timestamp)
        table = max(table, event.timestamp) if event.of_table else table
    return kept


def foretold(log: list[Produced]) -> tuple[dict[int, bytes | None], set[int]]:
    """What each record that is not late meets in the whole table, by offset; and the offsets of the late ones."""
    whole: dict[bytes, dict[int, bytes]] = {}
    for event in log:
        if event.of_table:
            whole.setdefault(event.key, {})[event.timestamp] = event.value
    found, late, time = {}, set(), NEVER
    for offset, event in enumerate(event for event in log if not event.of_table):
        if event.timestamp < time - GRACE:
            late.add(offset)
            continue
        time = max(time, event.timestamp)
        versions = whole.get(event.key, {})
        until = [since for since in versions if since <= event.timestamp]
        found[offset] = versions[max(until)] if until else None
    return found, late


class Services:
    """Both services, and what each has committed; `play` gives what the join emitted: (offset, version, cause)."""

    def __init__(self, chance: Random, log: list[Produced]) -> None:
        self.chance, self.produced = chance, 0
        self.log = log
        self.stream = [Row(e.key, e.value, e.timestamp, at) for at, e in enumerate(e for e in log if not e.of_table)]
        self.table = [[e for e in log if e.of_table and e.topic == topic] for topic in range(TOPICS)]
        self.history, self.floor, self.epochs = self._opened(TABLE), NEVER, {"join": (0, 0)}
        self.table_read, self.reached, self.stream_read = [0] * TOPICS, [NEVER] * TOPICS, 0
        self.join, self.needs = self._opened(JOIN), -1 - GRACE
        self.lease = Lease(1, 0, {0: self.needs})
        self.gate, self.due, self.waiting = Gate(), NEVER, 0
        self.emitted: list[tuple[int, bytes | None, str]] = []

    def _opened(self, operator):  # type: ignore[no-untyped-def]
        return operator.open(MemoryStorage(small(operator.layout)))

    def play(self) -> list[tuple[int, bytes | None, str]]:
        """Everything is produced, read and emitted, in an order that chance makes."""
        turns = [self.produce, self.run_table, self.run_table, self.run_join, self.run_join, self.restart]
        while self.produced < len(self.log) or self.behind():
            self.chance.choice(turns)()
        return self.emitted

    def behind(self) -> bool:
        """True while something that is there was not read, or is due and held."""
        of_table = sum(self.table_read) < sum(map(len, self.table))
        return self.stream_read < len(self.stream) or of_table or self.waiting > 0

    def produce(self) -> None:
        """Some more records of both topics are there."""
        self.produced = min(len(self.log), self.produced + self.chance.choice((1, 5, 40)))

    def end(self) -> int:
        """Where the stream's topic ends now."""
        return sum(not event.of_table for event in self.log[: self.produced])

    def table_ends(self) -> Offsets:
        """Where the table's topics end now."""
        there = [event.topic for event in self.log[: self.produced] if event.of_table]
        return tuple(there.count(topic) for topic in range(TOPICS))

    def read_of_table(self) -> list[Row]:
        """Some records of the table's topics, merged by time: none beyond a topic of which more is to be fetched."""
        ends, rows = self.table_ends(), list[Row]()
        fetched = [min(ends[topic], self.table_read[topic] + self.chance.choice((1, 8, 60))) for topic in range(TOPICS)]
        while left := [topic for topic in range(TOPICS) if self.table_read[topic] < fetched[topic]]:
            if any(self.table_read[topic] == fetched[topic] < ends[topic] for topic in range(TOPICS)):
                break
            topic = min(left, key=self.place)
            event, self.reached[topic] = self.table[topic][self.table_read[topic]], self.place(topic)
            rows.append(Row(event.key, event.value, event.timestamp, sum(self.table_read)))
            self.table_read[topic] += 1
        return rows

    def place(self, topic: int) -> int:
        """The place of the next record of a topic of the table: the largest timestamp up to it."""
        return max(self.reached[topic], self.table[topic][self.table_read[topic]].timestamp)

    def run_table(self) -> None:
        """A batch of the table, which goes by the lease that it sees."""
        rows, leases = self.read_of_table(), {"join": self.lease}
        self.epochs = seen(self.epochs, leases)
        self.history.hold(self.floor, needed(leases, self.epochs, 0))
        self.floor = self.history.step(Records.from_rows(rows), 0).floor

    def run_join(self) -> None:
        """A batch of the join: the stream's end, then those of the table's topics, then the pin."""
        until = min(self.end(), self.stream_read + self.chance.choice((0, 1, 8, 60)))
        table_ends = self.table_ends()
        if self.chance.random() < 0.3:
            self.chance.choice((self.produce, self.run_table))()
        self.gate.add_due(self.due, table_ends)
        read = tuple(self.table_read)
        open_until = ALWAYS if has_read(read, table_ends) else self.gate.released_up_to(read)
        self.join.read_table(self._replica(), open_until)
        rows = self.stream[self.stream_read : until]
        result = self.join.step(Records.from_rows(rows), 0)
        self.stream_read, self.due = until, result.stream_time - GRACE
        self.gate.add_due(self.due, table_ends)
        self.emitted += [(row["offset"], row["valid_from"], row["cause"]) for row in result.emissions.to_pylist()]
        self.needs, self.waiting = result.needs["t"], result.measures["waiting_records_now"]
        if self.chance.random() < 0.7:  # else the lease is stale
            self.lease = Lease(self.lease.epoch, 0, {0: self.needs})

    def _replica(self):  # type: ignore[no-untyped-def]
        """The table as the join sees it: now and then made again from its log."""
        if self.chance.random() < 0.5:
            return self.history
        made = self._opened(TABLE)
        made.restore(self.history.snapshot(), self.history.stream_time)
        made.hold(self.floor, self.floor)
        return made

    def restart(self) -> None:
        """Either service begins again from what is committed; the join with a lease before its first pin."""
        if self.chance.random() < 0.5:
            rows, time = self.history.snapshot(), self.history.stream_time
            self.history = self._opened(TABLE)
            self.history.restore(rows, time)
            self.history.hold(self.floor, self.floor)
            return
        rows, time = self.join.snapshot(), self.join.stream_time
        self.join = self._opened(JOIN)
        self.join.restore(rows, time)
        self.gate, self.lease = Gate(), Lease(self.lease.epoch + 1, 0, {0: self.needs})


@settings(many, max_examples=max(25, many.max_examples))
@given(seed=st.integers(0, 2**32))
def test_every_schedule_of_table_and_join_gives_the_same_join_in_the_same_order(seed: int) -> None:
    log = drawn(Random(seed))
    versions = {event.value: event.timestamp for event in log if event.of_table}
    due, late = foretold(log)
    orders = []
    for schedule in range(3):
        emitted = Services(Random(f"{seed} {schedule}"), log).play()
        in_time = [(offset, valid_from) for offset, valid_from, _ in emitted if offset not in late]
        assert in_time == [(offset, versions.get(due[offset] or b"")) for offset, _ in in_time]
        orders.append([offset for offset, _ in in_time])
    assert orders[0] == orders[1] == orders[2]
