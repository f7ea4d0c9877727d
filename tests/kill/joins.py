"""A join and its table, two services that are killed each on its own and both at once, and what must be true after it.

What the undisturbed join would have published is said by the versions of the table that its commits name: from them,
and from the input, every batch is computed again.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from threading import Barrier
from typing import Any, NamedTuple

import pyarrow as pa
import yaml

from tests.kill.harness import PARTITIONS, Feed, Record, application_content, committed, split
from tests.kill.service import Service, Start, in_turn
from tests.kill.turns import BY_ITSELF, asked_to_compact
from tests.lakes import lake_at
from tidegate.runtime.configuration.application import load
from tidegate.state.delta_log.log_version import LogVersion
from tidegate.state.lake.place import Place
from tidegate.testing.replay import Replay

TABLE, JOIN = "facts", "joined"
KEYS, FIRST_MS, APART_MS, LATENESS_MS = 500, 1_700_000_000_000, 10, 5_000
GRACE_MS = 2_000
PART_S, BARRIER_S = 10.0, 300.0


class Turn(NamedTuple):
    """A service that is started with a kill point, and what happens to it once its records come."""

    kill_at: str
    act: Callable[[Service], None]


def stream_records(count: int, seed: int = 3) -> list[Record]:
    """Timestamps up to 5 s out of order, some of them later than the grace; a key always in one partition."""
    rng = random.Random(seed)
    return [_record(rng, number, number * APART_MS, b'{"n":%d}' % number) for number in range(count)]


def table_records(count: int, every: int, seed: int = 4) -> list[Record]:
    """One for so many of the stream's; some are no JSON, some are tombstones."""
    rng = random.Random(seed)
    values = [b'{"v":%d}', b"v%d", b'{"w":%d}', b"[%d]"]
    made = []
    for number in range(count):
        value = None if number % 17 == 5 else values[number % 4] % number
        made.append(_record(rng, number, number * every * APART_MS, value))
    return made


def _record(rng: random.Random, number: int, after_ms: int, value: bytes | None) -> Any:
    key = rng.randrange(KEYS)
    return key % PARTITIONS, b"k%04d" % key, value, FIRST_MS + after_ms - min(after_ms, rng.randrange(LATENESS_MS))


def last_records(count: int) -> list[Record]:
    """A record far ahead for each partition: nothing before it is held any more."""
    return [(p, b"k%04d" % p, b"{}", FIRST_MS + count * APART_MS + 3_600_000) for p in range(PARTITIONS)]


@dataclass(kw_only=True)
class JoinWorld:
    """One application with both operators, its topics, and how far they were filled."""

    bootstrap: str
    topics: dict[str, str]
    folder: Path
    say: Callable[[str], None]
    lake: Place
    fed: int = 0
    file: Path = field(init=False)

    def __post_init__(self) -> None:
        self.file = self.folder / "both.yaml"
        self.file.write_text(yaml.safe_dump(self._content()))

    def _content(self) -> dict[str, Any]:
        table = {"kind": "table_history", "input": self.topics["table"], "history_retention": "1h"}
        join = {
            "kind": "stream_table_join",
            "input": self.topics["stream"],
            "output": self.topics["output"],
            "table": TABLE,
            "join": "left",
            "grace": f"{GRACE_MS}ms",
        }
        content = application_content("both", self.bootstrap, self.lake, "./state")
        return {**content, "operators": {TABLE: table, JOIN: join}}

    def run(self, records: int, turns: dict[str, Sequence[Turn]]) -> None:
        """Each service takes its turns, both side by side, with a part of its records in each; then it catches up."""
        feeds = {name: Feed(self.bootstrap, self.topics[name]) for name in ("stream", "table")}
        made = {TABLE: table_records(records // 5, 5), JOIN: stream_records(records)}
        with ThreadPoolExecutor(2) as threads:
            taken = [
                threads.submit(self._take, name, turns[name], feeds[topic], made[name])
                for name, topic in ((TABLE, "table"), (JOIN, "stream"))
            ]
        if failed := [error for one in taken if (error := one.exception()) is not None]:
            raise BaseExceptionGroup("a service went wrong, and the other one waited for it in vain", failed)
        feeds["stream"].start(last_records(records), 0)
        feeds["stream"].finish()
        self.fed = records + PARTITIONS
        for name in (TABLE, JOIN):
            with in_turn([Start(file=self.file, operator=name, until_caught_up=True)]) as services:
                next(services).go().wait_end()

    def _take(self, name: str, turns: Sequence[Turn], feed: Feed, made: Sequence[Record]) -> None:
        starts = [Start(file=self.file, operator=name, kill_at=turn.kill_at) for turn in turns]
        parts = split(made, len(turns))
        with in_turn(starts) as services:
            for turn, part, service in zip(turns, parts, services, strict=True):
                began = time.monotonic()
                if turn.kill_at in BY_ITSELF:
                    feed.start(part, 0)
                    service.go()
                else:
                    service.go().wait_ready()
                    feed.start(part, PART_S)
                turn.act(service)
                self.say(f"{name} died {turn.kill_at or 'at some moment'} after {time.monotonic() - began:.1f} s")
        feed.finish()

    def check(self) -> None:
        """Each record has one count and left once; what was published is the log's, and the log is what was pinned."""
        application = load(self.file)
        log = LogVersion.at(lake_at(application.lake / JOIN), None)
        newest = log.newest()
        assert newest is not None
        totals = [known.totals for known in newest.partitions.values()]
        assert sum(counts.records_in for counts in totals) == self.fed
        assert sum(counts.emitted + counts.held + counts.rejected for counts in totals) == self.fed
        assert sum(counts.held for counts in totals) == PARTITIONS
        emitted = [_emissions(log.read("emission", partition)) for partition in range(PARTITIONS)]
        assert committed(self.bootstrap, self.topics["output"]) == emitted
        replayed = list(Replay(application=application, name=JOIN).batches())
        assert [(batch.batch, batch.partition) for batch in replayed if not batch.agrees] == []
        assert replayed


def _emissions(rows: pa.Table) -> list[tuple[Any, ...]]:
    columns = [rows.column(name).to_pylist() for name in ("key", "value", "timestamp", "cause")]
    return [(key, value, timestamp, cause.encode()) for key, value, timestamp, cause in zip(*columns, strict=True)]


def dies(kill_at: str, *, compact: str = "") -> Turn:
    """Killed at the place; while it runs the operator named was asked to compact its log."""

    def act(service: Service) -> None:
        with asked_to_compact(service, bool(compact), compact):
            service.wait_death()

    return Turn(kill_at, act)


def dies_after(seconds: float) -> Turn:
    """Killed that long after it was ready."""

    def act(service: Service) -> None:
        time.sleep(seconds)
        service.kill()

    return Turn("", act)


def dies_with(barrier: Barrier, seconds: float) -> Turn:
    """Killed when both are ready and that long has passed: the other one at the same moment."""

    def act(service: Service) -> None:
        barrier.wait(BARRIER_S)
        time.sleep(seconds)
        service.kill()

    return Turn("", act)
