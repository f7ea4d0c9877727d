"""The number of partitions changes from 4 to 12 and back: state and output are those of fresh runs.

In each round every key has a record with the same timestamp, after a record that moves the stream time of its
partition there. So every key meets the same stream times, with 4 as with 12 partitions; the keys of those first records
are not compared. Keys are in the partitions that Kafka's partitioner chooses.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections import defaultdict

import pyarrow as pa
import pytest
import yaml
from confluent_kafka.admin import AdminClient, NewPartitions

from tests.end_to_end.conftest import World
from tests.end_to_end.test_service import consume
from tidegate.contracts.errors import StateError, UserError
from tidegate.kernels.record_format.partitioner import partitions_of
from tidegate.operators.registry import operator_for
from tidegate.runtime.kafka.topics import create_topic
from tidegate.runtime.repair.rescale import Request, rescale
from tidegate.state.delta_log.log_version import LogVersion
from tidegate.state.lake.opening import open_lake
from tidegate.state.slots import live_rows

pytestmark = [pytest.mark.broker, pytest.mark.spark]

KEYS = [b"key-%d" % number for number in range(60)]
FEW, MANY = 4, 12
WINDOWS = {"kind": "windowed_aggregation", "aggregate": {"count": True}}
KINDS = {
    "suppression": {"until": {"time_limit": "5s"}},
    "table": {"kind": "table_history", "history_retention": "4s", "output": None},
    "windows": {**WINDOWS, "window": {"tumbling": "4s", "grace": "2s"}, "emit": "final"},
    "sessions": {**WINDOWS, "window": {"session": "1500ms", "grace": "1s", "max_length": "1h"}, "emit": "updates"},
    "elements": {
        "kind": "windowed_aggregation",
        "window": {"tumbling": "4s", "grace": "2s"},
        "aggregate": {"collect": True},
        "emit": "final",
    },
    "deduplicate": {"kind": "deduplicate", "within": "3s", "grace": "1s"},
}


def place(key, partitions):
    return int(partitions_of(pa.chunked_array([pa.array([key], pa.binary())]), partitions)[0])


def first_keys():
    """A key for each of 12 partitions."""
    found = {place(key, MANY): key for key in (b"first-%d" % number for number in range(200))}
    return [found[partition] for partition in range(MANY)]


def a_round(number, partitions, keys=KEYS):
    """One record of each key, a second after the round before."""
    wanted = [*first_keys(), *keys]
    return [(place(key, partitions), key, b'"%d"' % number, 10_000 + 1_000 * number) for key in wanted]


def first(key):
    return key.startswith(b"first")


def held(here):
    """What is held, by key, with no offsets and no partitions; and the partitions' stream times."""
    log = LogVersion.at(open_lake(here.application.lake / here.name), None)
    operator = operator_for(here.application.operators[here.name])
    hidden = {"kind", "partition", "batch", "seq", "offset", "topic", "arrival", "opened"}
    found = []
    for partition in range(len(log.newest().partitions)):
        rows = live_rows(log.read("state", partition), operator.slot)
        found += [
            repr({n: v for n, v in row.items() if n not in hidden}) for row in rows.to_pylist() if not first(row["key"])
        ]
    return sorted(found), {known.stream_time for known in log.newest().partitions.values()}


def output(broker, here, partitions):
    """Per key what was published, by batch: a key may have been published to several partitions."""
    found = defaultdict(list)
    for partition in range(partitions):
        for message in consume(broker, here.output, partition):
            if first(message.key()):
                continue
            headers = dict(message.headers())
            windows = sorted(item for item in headers.items() if item[0].startswith("tidegate-window"))
            found[message.key()].append(
                (int(headers["tidegate-batch"]), (message.value(), message.timestamp()[1], windows))
            )
    return {key: [shown for _batch, shown in sorted(rows, key=lambda row: row[0])] for key, rows in found.items()}


@pytest.fixture
def worlds(spark, broker, topic, tmp_path, new_lake):
    """`worlds(name, partitions, **operator)`: a world whose input has so many partitions, and whose output has 12."""

    def make(name, partitions, **operator):
        folder = tmp_path / name
        out = topic(partitions=MANY) if operator.get("output", "") is not None else None
        return World(spark, broker, new_lake(folder / "lake"), folder, topic(partitions=partitions), out, operator)

    return make


def grow(broker, here, partitions):
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    for answer in admin.create_partitions([NewPartitions(here.source, partitions)]).values():
        answer.result()


def create_again(broker, here, partitions):
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    for answer in admin.delete_topics([here.source]).values():
        answer.result()
    create_topic({"bootstrap.servers": broker.bootstrap}, here.source, partitions)


def rescaled(here, partitions, **options):
    request = Request(application=here.application, name=here.name, partitions=partitions, **options)
    return rescale(request, lambda: here.spark)


def feed_and_run(rounds, *worlds):
    """These rounds are processed and published in each of the worlds, which are given with their partitions."""
    for one, partitions in worlds:
        one.feed([record for number in rounds for record in a_round(number, partitions)])
        one.run()


@pytest.mark.parametrize(
    "kind", [pytest.param(kind, marks=() if kind in ("suppression", "windows") else pytest.mark.long) for kind in KINDS]
)
def test_from_4_to_12_partitions_and_back_state_and_output_equal_those_of_fresh_runs(worlds, broker, kind):
    """here: 4 | grown, rescaled: 12 | created again, rescaled: 4      few: 4 | 4 | 4      many: 12 | 12"""
    here, few, many = (worlds(name, n, **KINDS[kind]) for name, n in (("here", FEW), ("few", FEW), ("many", MANY)))
    feed_and_run(range(4), (here, FEW), (few, FEW), (many, MANY))
    here.feed(a_round(4, FEW))  # unread when the topic grows: the rescale reads them where they are
    few.feed(a_round(4, FEW))
    many.feed(a_round(4, MANY))
    grow(broker, here, MANY)
    with pytest.raises(StateError, match="different number of partitions"):
        here.run()
    done = rescaled(here, MANY)
    assert (done.before, done.after, done.released) == (FEW, MANY, 0)
    few.run()
    many.run()
    assert held(here) == held(many)
    assert held(here)[0]
    feed_and_run((5, 6), (here, MANY), (few, FEW), (many, MANY))
    assert held(here) == held(many) == held(few)

    create_again(broker, here, FEW)
    with pytest.raises(UserError, match="created again"):
        rescaled(here, FEW)
    rescaled(here, FEW, recreated=True)
    feed_and_run((7, 8, 13), (here, FEW), (few, FEW))
    assert held(here) == held(few)
    if here.output is not None:
        assert output(broker, here, MANY) == output(broker, few, FEW)
        assert output(broker, few, FEW)


def test_records_in_partitions_that_kafkas_partitioner_does_not_choose_refuse_a_rescale(worlds, broker):
    here = worlds("here", FEW, **KINDS["suppression"])
    here.feed([((place(key, FEW) + 1) % FEW, key, b"v", 1_000) for key in KEYS])
    here.run()
    before = LogVersion.at(open_lake(here.application.lake / here.name), None).newest()
    grow(broker, here, MANY)
    with pytest.raises(UserError, match="cannot be rescaled by key") as refused:
        rescaled(here, MANY)
    assert "of" in refused.value.value
    after = LogVersion.at(open_lake(here.application.lake / here.name), None).newest()
    assert (len(after.partitions), after.partitions[0].totals) == (FEW, before.partitions[0].totals)


def test_a_number_that_the_topic_does_not_have_is_refused(worlds):
    here = worlds("here", FEW, **KINDS["suppression"])
    here.feed(a_round(0, FEW))
    here.run()
    with pytest.raises(UserError, match="does not have that number of partitions"):
        rescaled(here, MANY)
    with pytest.raises(UserError, match="has that number of partitions already"):
        rescaled(here, FEW)


def test_producers_that_do_not_know_the_new_partitions_yet_have_their_records_read_first(worlds, broker):
    here, fresh = (worlds(name, n, **KINDS["suppression"]) for name, n in (("here", FEW), ("fresh", MANY)))
    here.feed(a_round(0, FEW))
    here.run()
    grow(broker, here, MANY)
    here.feed(a_round(1, FEW, KEYS[:30]) + a_round(1, MANY, KEYS[30:]))
    rescaled(here, MANY)
    fresh.feed(a_round(0, MANY) + a_round(1, MANY))
    fresh.run()
    here.run()
    assert held(here) == held(fresh)


@pytest.mark.parametrize("point", ["before_rescale_commit", "after_rescale_commit"])
def test_a_command_killed_around_its_commit_has_moved_nothing_or_everything(worlds, broker, tmp_path, point):
    here = worlds("here", FEW, **KINDS["suppression"])
    here.feed(a_round(0, FEW))
    here.run()
    before = held(here)
    grow(broker, here, MANY)
    file = tmp_path / "test.yaml"
    file.write_text(yaml.safe_dump(here.raw))
    asked = [sys.executable, "-m", "tidegate.cli.main", "rescale", str(file), here.name, "--partitions", str(MANY)]
    killed = subprocess.run(
        asked, env=os.environ | {"TIDEGATE_KILL_AT": point}, start_new_session=True, capture_output=True, timeout=200
    )
    assert killed.returncode == -signal.SIGKILL, killed.stderr.decode()
    moved = point == "after_rescale_commit"
    log = LogVersion.at(open_lake(here.application.lake / here.name), None)
    assert (len(log.newest().partitions), held(here)) == (MANY if moved else FEW, before)
    again = subprocess.run(asked, capture_output=True, timeout=200, text=True)
    told = "has that number of partitions already" if moved else "4 to 12 partitions, recorded as batch"
    assert told in again.stdout + again.stderr
    assert held(here) == before
