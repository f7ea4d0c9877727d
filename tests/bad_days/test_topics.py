"""Topics that have changed: re-created, shortened by retention, blocked, or with a limit too small for a record."""

from __future__ import annotations

import json
from threading import Event

import pytest
import yaml
from click.testing import CliRunner
from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, NewPartitions

from tests.bad_days.conftest import PARTITIONS, numbered, produce, published, wait_for
from tidegate.cli.main import main
from tidegate.contracts.errors import OffsetsGone, OutputTooLarge, StateError
from tidegate.runtime.doctor.status import operator_status
from tidegate.runtime.kafka.client import client
from tidegate.runtime.kafka.topics import create_topic

pytestmark = [pytest.mark.broker, pytest.mark.spark]

AT_ONCE = {"buffer": {"max_keys": 0, "when_full": "emit"}}


def done(broker, ask):
    """What the broker's administrator is asked has been done; the client has to live until then."""
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    for answer in ask(admin).values():
        answer.result()


def delete_records(broker, topic, before):
    """The records of each partition before that offset are gone, as retention takes them."""
    partitions = [TopicPartition(topic, partition, offset) for partition, offset in before.items()]
    done(broker, lambda admin: admin.delete_records(partitions))


def make_again(broker, topic):
    done(broker, lambda admin: admin.delete_topics([topic]))
    create_topic({"bootstrap.servers": broker.bootstrap}, topic, PARTITIONS)


@pytest.mark.parametrize("which", ["source", "output"])
def test_a_topic_re_created_while_the_operator_runs_stops_it_and_both_ids_are_named(world, broker, running, which):
    here = world(**AT_ONCE)
    topic, kafka = getattr(here, which), client({"bootstrap.servers": broker.bootstrap})
    driver, before = running(here), kafka.topic(topic).id
    driver.wait("running")
    make_again(broker, topic)
    error = driver.ended()
    assert isinstance(error, StateError)
    assert error.problem == f"topic {topic} was deleted and created again since the last batch"
    assert error.value == f"topic id {kafka.topic(topic).id}, was {before}"
    assert "give the operator a" in error.remedy
    with pytest.raises(StateError, match="created again"):
        here.driver()


def test_a_partition_added_while_it_runs_stops_the_operator_with_the_remedy(world, broker, running):
    here = world(**AT_ONCE)
    driver = running(here)
    driver.wait("running")
    done(broker, lambda admin: admin.create_partitions([NewPartitions(here.source, PARTITIONS + 1)]))
    error = driver.ended()
    assert isinstance(error, StateError)
    assert error.value == f"{PARTITIONS + 1}, was {PARTITIONS}"
    assert f"tidegate rescale FILE {here.name} --partitions {PARTITIONS + 1}" in error.remedy
    with pytest.raises(StateError, match="a different number of partitions"):
        here.driver()


def test_records_lost_by_retention_stop_the_operator_until_a_person_accepts_the_loss(world, broker, tmp_path):
    """0: read to 2, of 6; offsets 2 to 4 are deleted unread   1: read to 1, of 3; offset 1 is deleted unread"""
    here = world(**AT_ONCE)
    produce(broker.bootstrap, here.source, *numbered(0, 4, 1))
    here.run()
    driver = here.driver()
    produce(broker.bootstrap, here.source, *numbered(8, 12, 16, 20, 5, 9))
    delete_records(broker, here.source, {0: 5, 1: 2})
    for start in (lambda: driver.run(Event()), here.driver):
        with pytest.raises(OffsetsGone) as told:
            start()
        assert told.value.value == "partition 0: offsets 2 to 4; partition 1: offsets 1 to 1"
        assert told.value.remedy.endswith(f"tidegate skip FILE {here.name} 0:2-5 1:1-2")

    file = tmp_path / "test.yaml"
    file.write_text(yaml.safe_dump(here.raw))
    table = CliRunner().invoke(main, ["status", str(file)]).output
    assert "stopped: records of" in table
    assert "partition 0: records lost: offsets 2 to 4 were deleted before they were read" in table
    too_much = CliRunner().invoke(main, ["skip", str(file), here.name, "0:2-6"])
    assert too_much.exit_code == 2
    accepted = CliRunner().invoke(main, ["skip", str(file), here.name, "0:2-5", "1:1-2", "--json"])
    assert accepted.exit_code == 0, accepted.output
    assert json.loads(accepted.stdout)["skipped"] == {"0": [2, 5], "1": [1, 2]}
    here.run()
    wait_for(lambda: published(broker.bootstrap, here.output) == [0, 1, 4, 9, 20], "it goes on behind the gaps")
    told = CliRunner().invoke(main, ["status", str(file), "--json"])
    skipped = json.loads(told.stdout)[here.name]["skipped"]
    assert [(each["partition"], each["from"], each["to"]) for each in skipped] == [(0, 2, 5), (1, 1, 2)]


def test_an_open_transaction_of_a_different_producer_blocks_the_input_and_status_names_it(world, broker, running):
    here = world(**AT_ONCE)
    blocker = Producer({"bootstrap.servers": broker.bootstrap, "transactional.id": f"shop-{here.source}"})
    blocker.init_transactions(30)
    blocker.begin_transaction()
    blocker.produce(here.source, b"v", b"1", 0, timestamp=5)
    blocker.flush(30)
    produce(broker.bootstrap, here.source, *numbered(0, 2))
    driver = running(here)
    wait_for(lambda: published(broker.bootstrap, here.output) == [2], "the other partitions go on")
    status = operator_status(here.application, here.name)
    assert status["why"]["rule"] == "running"
    why = status["partitions"][0]["why"]
    assert why["rule"] == "open transaction"
    assert f"'shop-{here.source}' (producer id " in why["text"]
    assert [status["partitions"][n]["why"]["rule"] for n in (1, 2, 3)] == ["no input"] * 3
    blocker.commit_transaction(30)
    wait_for(lambda: published(broker.bootstrap, here.output) == [0, 1, 2], "it goes on")
    assert driver.end() is None


def test_an_emission_too_large_for_the_output_is_named_and_not_lost(world, broker):
    here = world(**AT_ONCE)
    _limit(broker, here.output, 1_000)
    produce(broker.bootstrap, here.source, (0, b"1", b"v", 1), (0, b"2", b"x" * 5_000, 2), (1, b"3", b"v", 3))
    with pytest.raises(OutputTooLarge) as told:
        here.run()
    assert "max.message.bytes" in told.value.remedy
    assert "2" in f"{told.value.problem} {told.value.value}"
    assert published(broker.bootstrap, here.output) == []
    _limit(broker, here.output, 10_000)
    here.run()
    wait_for(lambda: published(broker.bootstrap, here.output) == [1, 2, 3], "nothing is lost")


def _limit(broker, topic, size):
    entry = ConfigEntry("max.message.bytes", str(size), incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ConfigResource.Type.TOPIC, topic, incremental_configs=[entry])
    done(broker, lambda admin: admin.incremental_alter_configs([resource]))
