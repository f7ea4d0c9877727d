"""Kafka to Delta to Kafka, on real parts."""

from __future__ import annotations

import os
import shutil
import signal
from threading import Event, Timer
from time import monotonic

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from tests.kill.harness import Feed, committed, records, split
from tests.lakes import lake_at
from tests.patience import wait_for
from tidegate.contracts.errors import BufferFull, EngineError, StartOver, UserError
from tidegate.runtime import service
from tidegate.runtime.batch_loop.driver import OperatorDriver, Wiring
from tidegate.runtime.publishing import publication
from tidegate.runtime.spark.jobs import SparkJobs
from tidegate.runtime.spark.session import Spark
from tidegate.runtime.task import run
from tidegate.runtime.workers import jobs as worker_jobs
from tidegate.spark import register_views
from tidegate.state.delta_log.log_version import LogVersion
from tidegate.state.delta_log.operator_log import OperatorLog

pytestmark = [pytest.mark.broker, pytest.mark.spark]

SMALL = {"until": {"time_limit": "5s"}, "buffer": {"max_keys": 100, "when_full": "emit"}}
PATIENCE_S = 180


def produce(broker, topic, *made, headers=None):
    producer = Producer({"bootstrap.servers": broker.bootstrap, "message.max.bytes": 1_040_000})
    for partition, key, value, timestamp in made:
        producer.produce(topic, value, key, partition, timestamp=timestamp, headers=headers, on_delivery=_taken)
    producer.flush()


def _taken(error, _message):
    assert error is None, error


def consume(broker, topic, partition=0):
    consumer = Consumer(
        {
            "bootstrap.servers": broker.bootstrap,
            "group.id": "outside",
            "isolation.level": "read_committed",
            "enable.partition.eof": True,
            "fetch.message.max.bytes": 4_000_000,
        }
    )
    consumer.assign([TopicPartition(topic, partition, 0)])
    messages = []
    while (message := consumer.poll(10)) is not None and message.error() is None:
        messages.append(message)
    consumer.close()
    return messages


def test_keys_values_headers_and_timestamps_pass_through_byte_for_byte(world, broker):
    here = world(buffer={"max_keys": 0, "when_full": "emit"})
    every_byte, large = bytes(range(256)), b"x" * 1_000_000
    headers = [("h", b"\x00"), ("h", None)]
    produce(broker, here.source, (0, every_byte, large, 7), headers=headers)
    produce(broker, here.source, (0, b"", b"", 8), (0, b"gone", None, 9), headers=headers)
    here.run()
    seen = consume(broker, here.output)
    assert [(m.key(), m.value(), m.timestamp()[1]) for m in seen] == [
        (every_byte, large, 7),
        (b"", b"", 8),
        (b"gone", None, 9),
    ]
    assert seen[0].headers() == [
        ("h", b"\x00"),
        ("h", None),
        ("tidegate-operator", b"updates"),
        ("tidegate-batch", b"1"),
        ("tidegate-seq", b"0"),
        ("tidegate-cause", b"keys"),
    ]


@pytest.mark.spark_reads
def test_invalid_records_become_rows_and_never_stop_valid_ones(world, broker):
    """T = 5 000; 3 000 is older than T - 1 s; a year 3000 record is too far ahead of the clock"""
    here = world(years_ahead=True, until={"time_limit": "1h"}, max_lateness="1s", max_ahead="1h")
    produce(
        broker,
        here.source,
        (0, None, b"no key", 5),
        (0, b"a", b"good", 5_000),
        (0, b"b", b"late", 3_000),
        (0, b"c", b"ahead", 32_503_680_000_000),
    )
    here.feed([(0, b"d", b"negative", -5), (0, b"e", b"good too", 5_001)])  # librdkafka refuses to send the first
    driver = here.run()
    register_views(here.spark, here.application)
    rejected = here.spark.sql("SELECT value, cause FROM updates_rejected ORDER BY offset").toArrow().to_pylist()
    late = here.spark.sql("SELECT value, lateness, bound, topic FROM updates_late").toArrow().to_pylist()
    held = here.spark.sql("SELECT key FROM updates_buffer ORDER BY key").toArrow()["key"].to_pylist()
    assert [(row["value"], row["cause"]) for row in rejected] == [
        (b"no key", "null key"),
        (b"ahead", "too far ahead"),
        (b"negative", "negative timestamp"),
    ]
    assert late == [{"value": b"late", "lateness": 2_000, "bound": 4_000, "topic": here.source}]
    assert held == [b"a", b"e"]
    total = driver.claim.operator.newest.partitions[0].totals
    assert (total.records_in, total.applied, total.late, total.rejected) == (6, 2, 1, 3)


def test_thirty_thousand_records_with_one_timestamp_keep_their_order(world, broker):
    here = world(buffer={"max_keys": 10, "when_full": "emit"})
    made = [(0, b"%06d" % i, b"v", 1_000) for i in range(30_000)]
    here.feed(made)
    driver = here.run()
    assert driver.claim.operator.newest.partitions[0].totals.emitted == 29_990
    assert [m.key() for m in consume(broker, here.output)] == [key for _, key, _, _ in made[:29_990]]


def test_state_is_carried_over_a_restart_a_deleted_local_state_and_a_compaction(world, broker):
    here, calm = world(**SMALL), world(beside="calm", **SMALL)
    made = records(8_000)
    for step, part in enumerate(split(made, 4)):
        here.feed(part)
        driver = here.run()
        if step == 0:
            shutil.rmtree(here.application.state)
        if step == 1:
            driver.claim.operator.compact()
            shutil.rmtree(here.application.state)
        if step == 2:
            driver.claim.operator.compact()
    calm.feed(made)
    calm.run()
    assert committed(broker.bootstrap, here.output) == committed(broker.bootstrap, calm.output)


def test_a_due_compaction_runs_while_batches_continue_and_changes_no_result(world, broker, monkeypatch):
    """parts   1 2 3 | due: work begins, and is held back | 4 5 6 | it may end | 7 8, and a restart from the log"""
    here, calm = world(**SMALL), world(beside="calm", **SMALL)
    may_end, real = Event(), SparkJobs.each_sequentially
    monkeypatch.setattr(SparkJobs, "each_sequentially", lambda *work: may_end.wait(PATIENCE_S) and real(*work))
    driver, made = here.driver(max_batches=3), records(1_600)
    parts = split(made, 8)
    for part in parts[:6]:
        take(driver, here, part)
    assert driver.claim.operator.newest.compacted == 0
    working_since = driver.claim.operator.newest.batch - 3
    may_end.set()
    round_until(driver, lambda: driver.claim.operator.newest.compacted)
    assert all(known.snapshot_batch <= working_since for known in driver.claim.operator.newest.partitions.values())
    for part in parts[6:]:
        take(driver, here, part)
    shutil.rmtree(here.application.state)
    wait_for(here.run().claim.operator.flush, "local states are ready")

    calm.feed(made)
    wait_for(calm.run().claim.operator.flush, "local states are ready")
    assert committed(broker.bootstrap, here.output) == committed(broker.bootstrap, calm.output)
    assert emissions(here) == emissions(calm)


def take(driver, here, part):
    """The part is in the input, and the driver's batches have all of it."""
    before = counted(driver)
    here.feed(part)
    round_until(driver, lambda: counted(driver) == before + len(part))


def round_until(driver, condition):
    deadline = monotonic() + PATIENCE_S
    while not condition():
        assert monotonic() < deadline
        driver.claim.operator.round()


def counted(driver):
    return sum(known.totals.records_in for known in driver.claim.operator.newest.partitions.values())


def emissions(here):
    """The log's emissions, whatever the batches were."""
    found = (
        LogVersion.at(lake_at(here.log), None).read("emission").select(["partition", "batch", "seq", "key", "value"])
    )
    return found.sort_by([(name, "ascending") for name in ("partition", "batch", "seq")]).drop_columns(["batch", "seq"])


def test_shut_down_commits_earlier_records_and_a_larger_bound_continues_at_the_offset(world, broker):
    here = world(until={"time_limit": "1h"}, buffer={"max_keys": 2, "when_full": "shut_down"})
    produce(broker, here.source, *((0, b"%d" % i, b"v", 1_000 + i) for i in range(4)))
    driver = here.driver()
    with pytest.raises(BufferFull, match="before offset 2 of partition 0"):
        driver.run(Event(), until_caught_up=True)
    assert driver.claim.operator.newest.partitions[0].totals.held == 2
    driver = here.changed(buffer={"max_keys": 9, "when_full": "shut_down"}).run()
    assert driver.claim.operator.newest.partitions[0].totals.held == 4


def test_an_idle_partition_beside_a_busy_one_releases_what_it_holds(world, broker):
    """partition 0 has four records every 200 ms
    partition 1 has one; idle after 1 s, then T grows with the wall clock: a limit of 2 s is reached 3 s after it
    """
    here = world(until={"time_limit": "2s"}, idle_after="1s")
    produce(broker, here.source, (1, b"quiet", b"v", 1_000))
    feed = Feed(broker.bootstrap, here.source)
    driver = here.driver()
    feed.start([(0, b"busy", b"v", 1_000 + n) for n in range(160)], seconds=8)
    round_until(driver, lambda: driver.claim.operator.newest.partitions[1].totals.emitted == 1)
    feed.finish()
    (message,) = consume(broker, here.output, 1)
    assert (message.key(), dict(message.headers())["tidegate-cause"]) == (b"quiet", b"idle")
    assert driver.claim.operator.newest.partitions[0].stream_time < 2_000
    assert driver.claim.operator.newest.partitions[1].stream_time >= 3_000


def test_flush_emits_everything_held_and_drain_does_not(world, broker):
    here = world(until={"time_limit": "1h"})
    produce(broker, here.source, (0, b"a", b"1", 5), (0, b"b", b"2", 3))
    driver = here.run()
    assert consume(broker, here.output) == []
    wait_for(driver.claim.operator.flush, "local states are ready")
    assert [(m.key(), dict(m.headers())["tidegate-cause"]) for m in consume(broker, here.output)] == [
        (b"b", b"flush"),
        (b"a", b"flush"),
    ]


@pytest.mark.spark_reads
def test_without_an_output_topic_the_emissions_stay_in_the_lake(world, broker):
    here = world(output=False, buffer={"max_keys": 0, "when_full": "emit"})
    produce(broker, here.source, (0, b"a", b"1", 5))
    here.run()
    register_views(here.spark, here.application)
    assert here.spark.sql("SELECT key FROM updates_emissions").toArrow()["key"].to_pylist() == [b"a"]


def test_an_idle_driver_notices_that_a_newer_one_has_claimed(world, broker):
    here = world(buffer={"max_keys": 0, "when_full": "emit"})
    produce(broker, here.source, (0, b"a", b"1", 5))
    older, newer = here.run(), here.run()
    with pytest.raises(StartOver, match="an entry above"):
        older.claim.operator.round()
    assert not newer.claim.operator.round()


def test_a_missing_topic_is_named_with_the_command_that_creates_it(world):
    here = world(until={"time_limit": "1s"}).changed(input="no-such-topic")
    with pytest.raises(UserError, match="no-such-topic") as raised:
        here.driver()
    assert "tidegate topics create" in raised.value.remedy


def test_a_missing_broker_gives_one_clear_message(world):
    here = world(until={"time_limit": "1s"})
    nowhere = {"bootstrap.servers": "127.0.0.1:1", "request.timeout.ms": "2000"}
    application = here.application.model_copy(update={"kafka": nowhere})
    with pytest.raises(EngineError, match=r"127\.0\.0\.1:1"):
        OperatorDriver(Wiring(spark=here.spark, application=application, name=here.name)).start()


def _numbered(broker, here):
    produce(broker, here.source, *((n % 4, b"%d" % n, b"v", n) for n in range(8)))


def _seen(broker, here):
    return sorted(m.key() for partition in range(4) for m in consume(broker, here.output, partition))


ALL = [b"%d" % n for n in range(8)]


@pytest.mark.parametrize("carried_out", [False, True])
def test_an_end_without_an_answer_is_resolved_by_the_mark(world, broker, monkeypatch, carried_out):
    here = world(buffer={"max_keys": 0, "when_full": "emit"})
    driver, real, lost = here.driver(), publication.end_all, []

    def ends(client, producers, **rest):
        answers = real(client, producers, **rest) if carried_out else list(producers)
        if lost:
            return real(client, producers, **rest)
        lost.append(True)
        return [EngineError("no answer") for _ in answers]

    monkeypatch.setattr(publication, "end_all", ends)
    _numbered(broker, here)
    driver.run(Event(), until_caught_up=True)
    assert lost
    assert _seen(broker, here) == ALL


def test_output_committed_for_a_former_topic_is_published_there(world, broker, topic, monkeypatch):
    here = world(buffer={"max_keys": 0, "when_full": "emit"})
    _numbered(broker, here)
    driver = here.driver()
    with monkeypatch.context() as crash:
        crash.setattr(publication.Publication, "end", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            driver.run(Event(), until_caught_up=True)
    here.changed(output=topic(partitions=4)).run()
    assert _seen(broker, here) == ALL


@pytest.mark.parametrize("landed", [False, True])
def test_a_new_claim_resolves_a_commit_in_doubt(world, broker, monkeypatch, landed):
    here = world(buffer={"max_keys": 0, "when_full": "emit"})
    driver, real, lost = here.driver(), OperatorLog.commit, []

    def commit(log, meta, files, replaces=()):
        if meta.action == "batch" and not lost:
            lost.append(meta.batch)
            if landed:
                real(log, meta, files, replaces)
            raise EngineError("no answer")
        real(log, meta, files, replaces)

    monkeypatch.setattr(OperatorLog, "commit", commit)
    before = driver.claim.operator.newest.epoch
    _numbered(broker, here)
    driver.run(Event(), until_caught_up=True)
    assert lost
    assert driver.claim.operator.newest.epoch == before + 1
    assert _seen(broker, here) == ALL


def test_batches_start_before_spark_is_ready_and_then_move_to_spark(world, broker, monkeypatch):
    """part 1 is committed by this process; Spark comes; part 2 is committed by its workers, with the same state"""
    here = world(**SMALL)
    first, second = split(records(8_000), 2)
    may_start, stop, workers = Event(), Event(), []
    spark = type("Kept", (Spark,), {"stop": lambda self: None})(here.spark.sparkContext)
    monkeypatch.setattr(service, "running_spark", lambda: None)
    monkeypatch.setattr(service, "start_spark", lambda *_: may_start.wait(PATIENCE_S) and spark)
    monkeypatch.setattr(worker_jobs, "run_group", lambda attempt, group: (yield from _telling(workers, attempt, group)))
    batches = []

    def heard(meta, _seconds):
        batches.append(meta)
        done = _read(meta)
        if done == 4_000 and not may_start.is_set():
            may_start.set()
            Timer(5, lambda: here.feed(second)).start()
        if done == 8_000:
            stop.set()

    here.feed(first)
    service.run(here.application, [here.name], listener=heard, stop=stop)
    assert _read(batches[-1]) == 8_000
    assert len(workers) == next(number for number, meta in enumerate(batches, 1) if _read(meta) == 4_000)
    recovered = [change.recovered for meta in batches for change in meta.changed.values() if change.recovered]
    assert {how.partition(":")[0] for how in recovered} <= {"rebuild"}
    calm = world(beside="calm", **SMALL)
    calm.feed(first)
    calm.feed(second)
    calm.run()
    assert committed(broker.bootstrap, here.output) == committed(broker.bootstrap, calm.output)


def _read(meta):
    return sum(known.totals.records_in for known in meta.partitions.values())


def _telling(workers, attempt, group):
    """What is noted in Spark's workers is never seen here."""
    workers.append(os.getpid())
    yield from run.run_group(attempt, group)


def test_a_killed_python_worker_costs_only_one_attempt(world, broker):
    here = world(**SMALL)
    driver = here.driver()
    first, second = split(records(8_000), 2)
    here.feed(first)
    driver.run(Event(), until_caught_up=True)
    here.feed(second)
    original = driver._parts.jobs.run

    def run(attempt, plans):
        driver._parts.jobs.run = original
        workers = here.spark.sparkContext.parallelize(range(2), 2).map(lambda _: os.getpid()).collect()
        Timer(0.05, lambda: [os.kill(worker, signal.SIGKILL) for worker in set(workers)]).start()
        return original(attempt, plans)

    driver._parts.jobs.run = run
    driver.run(Event(), until_caught_up=True)
    assert counted(driver) == 8_000
    committed(broker.bootstrap, here.output)  # checks that no (batch, seq) comes twice
