"""Two topics merged by time and counted in windows, in a process that dies between log and output.

Nothing is lost or emitted twice, and the order is that of the merge, one record at a time.
"""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest

from tests.kill.service import run_command
from tidegate.application.loading import load_application
from tidegate.contracts.event_time import NO_STREAM_TIME
from tidegate.contracts.records import Row
from tidegate.devkit.produce_consume import read_all, write_all
from tidegate.operators.registry import operator_for
from tidegate.operators.testing.laws import Partition, Trace
from tidegate.state.delta_log.log_version import LogVersion
from tidegate.state.lake.opening import open_lake
from tidegate.testing.replay import Replay

PARTITIONS = 2
BEGIN, MINUTE = 1_356_998_400_000, 60_000
DISORDER_MS = 14 * MINUTE
SHOPS = [b"north", b"south", b"east"]
PROGRAM = """
import tidegate as tg

app = tg.Application("shop", kafka={kafka!r}, lake="./lake", keep_output="forever", control=None)
sales = app.stream([{orders!r}, {returns!r}], name="sales", value=tg.json({{"n": "int64"}}), dead_letters={letters!r})
counts = sales.filter("n % 7 > 0").window(tg.tumbling("10m", grace="2m")).count(name="counts")
counts.suppress(tg.window_close(), name="final").to({results!r})
"""

Record = tuple[int, bytes, bytes, int]
"""(partition, key, value, timestamp)."""
Origin = tuple[str, int]
"""The topic and the offset of a record."""


def made(count: int, every_ms: int, begin: int, seed: int) -> list[Record]:
    """Records in steps of event time from `begin` minutes on; some are so far out of order that they are late."""
    rng = random.Random(seed)
    return [
        (
            number % PARTITIONS,
            rng.choice(SHOPS),
            b'{"n": %d}' % number,
            BEGIN + begin * MINUTE + number * every_ms - rng.randrange(DISORDER_MS) + DISORDER_MS,
        )
        for number in range(count)
    ]


class Merge:
    """The rule of the merge for one partition, one record at a time; what has come later goes on behind it."""

    def __init__(self, topics: list[str]) -> None:
        self._topics = topics
        self._reached = [NO_STREAM_TIME] * len(topics)
        self._offsets = [0] * len(topics)
        self.rows: list[Row] = []
        self.origins: list[Origin] = []

    def add(self, *inputs: list[Record]) -> None:
        """Merge the records of the topics, each in its order."""
        left = [list(records) for records in inputs]
        while any(left):
            places = {n: max(self._reached[n], records[0][3]) for n, records in enumerate(left) if records}
            topic = min(places, key=lambda n: (places[n], n))
            self._reached[topic] = places[topic]
            _, key, value, timestamp = left[topic].pop(0)
            self.rows.append(Row(key, value, timestamp, len(self.rows)))
            self.origins.append((self._topics[topic], self._offsets[topic]))
            self._offsets[topic] += 1


class Shop:
    """The program in a folder, and its topics."""

    def __init__(self, broker: Any, topic: Any, folder: Path) -> None:
        self.kafka, self.folder, self._program = {"bootstrap.servers": broker.bootstrap}, folder, folder / "app.py"
        self.topics = {name: topic(partitions=PARTITIONS) for name in ("orders", "returns", "results", "letters")}
        self._program.write_text(PROGRAM.format(kafka=broker.bootstrap, **self.topics))
        self.application = load_application(folder / "app.py:app").configuration()
        self.merges = [Merge([self.topics["orders"], self.topics["returns"]]) for _ in range(PARTITIONS)]

    def write(self, orders: list[Record], returns: list[Record]) -> None:
        """Both topics have got these records."""
        for name, records in (("orders", orders), ("returns", returns)):
            assert write_all(self.kafka, self.topics[name], records) == len(records)
        for partition, merge in enumerate(self.merges):
            merge.add(*([record for record in topic if record[0] == partition] for topic in (orders, returns)))

    def command(self, *arguments: str, kill_at: str = "") -> str:
        """Run a command on the program; return what it prints. With `kill_at` it dies there."""
        name, *others = arguments
        return run_command(name, f"{self._program}:app", *others, folder=self.folder, kill_at=kill_at)

    def run(self, kill_at: str = "") -> None:
        """Run the operator until it has caught up, or dies at a kill point."""
        self.command("run", "--operator", "sales", "--until-caught-up", kill_at=kill_at)

    def predicted(self, partition: int) -> Trace:
        """What the operator makes of the records in the order of the merge, in one batch."""
        operator = operator_for(self.application.operators["sales"])
        return Partition(operator, 0).play_all(self.merges[partition].rows, set())

    def refused(self, partition: int) -> list[Origin]:
        """Where the log says that late and rejected records were read."""
        log = LogVersion.at(open_lake(self.application.lake / "sales"), None)
        rows = [row for kind in ("late", "rejected") for row in log.read(kind, partition).to_pylist()]
        return [(row["origin_topic"], row["origin_offset"]) for row in rows]


@pytest.fixture
def shop(broker: Any, topic: Any, tmp_path: Path) -> Shop:
    """A shop whose orders go on while its returns stop half-way."""
    return Shop(broker, topic, tmp_path)


@pytest.mark.broker
@pytest.mark.spark
def test_what_is_made_of_merged_topics_is_in_one_order_through_deaths_between_log_and_output(shop: Shop) -> None:
    shop.write(made(500, 30_000, 0, 1), made(250, 60_000, 0, 2))
    shop.run(kill_at="before_commit")
    shop.run(kill_at="after_commit")  # nothing of the batch is published
    shop.run()
    shop.write(made(500, 30_000, 250, 3), made(250, 60_000, 250, 4))
    shop.run(kill_at="after_half_of_output")
    shop.run()

    late = []
    for partition, rows in enumerate(read_all(shop.kafka, shop.topics["results"])):
        trace, origins = shop.predicted(partition), shop.merges[partition].origins
        assert rows == [(row["key"], row["value"], row["timestamp"]) for row in trace.emissions]
        assert len(rows) > 20
        late.append([origins[row["offset"]] for row in trace.late])
        assert shop.refused(partition) == late[-1]
    assert {name for origins in late for name, _ in origins} == {shop.topics["orders"], shop.topics["returns"]}
    letters = read_all(shop.kafka, shop.topics["letters"])
    assert [len(rows) for rows in letters] == [len(origins) for origins in late]

    batches = list(Replay(application=shop.application, name="sales").batches())
    assert batches and all(batch.agrees for batch in batches)
    [explained] = shop.command("explain", "sales", "--key", "north", "--json").splitlines()[:1]
    assert json.loads(explained)["verdict"] == "equal"

    returned = sum(name == shop.topics["returns"] for origins in late for name, _ in origins)
    shop.command("redrive", "sales", "--to", shop.topics["returns"])
    again = sum(map(len, read_all(shop.kafka, shop.topics["returns"]))) - 500
    assert again == returned
