"""Marks that a real broker drops, and output that it deletes as well."""

from __future__ import annotations

import time

import pytest
import yaml
from click.testing import CliRunner
from kafka.admin import ConfigResource, ConfigResourceType

from tests.bad_days.conftest import numbered, produce, published, wait_for
from tests.end_to_end.conftest import PARTITIONS, World
from tidegate.cli.main import main
from tidegate.contracts.errors import Undecided
from tidegate.contracts.naming import group_id
from tidegate.devkit.embedded_broker import Broker
from tidegate.runtime.install import paths
from tidegate.runtime.kafka.client import KafkaClient
from tidegate.runtime.kafka.offsets import committed_offsets, earliest, latest
from tidegate.runtime.kafka.topics import admin_client, create_topic

RETENTION_S = 60
"""The shortest time for which a broker can be told to keep offsets."""


@pytest.fixture
def forgetful(tmp_path_factory):
    """A broker that forgets as soon as it may."""
    settings = {
        "offsets.retention.minutes": "1",
        "offsets.retention.check.interval.ms": "500",
        "log.retention.check.interval.ms": "500",
    }
    folder = tmp_path_factory.mktemp("forgetful")
    with Broker.start(folder, paths.jars("broker"), settings=settings) as broker:
        yield broker


@pytest.mark.long
def test_marks_of_quiet_partitions_outlive_the_broker_s_retention_and_lost_ones_are_resolved(
    spark, forgetful, tmp_path, running, new_lake
):
    """One service runs and has nothing to do; two have stopped, and of one of them the topic deletes the output."""
    options = {"bootstrap.servers": forgetful.bootstrap}
    kafka, worlds = KafkaClient(options), {}
    for name in ("runs", "kept", "deleted"):
        source, out = f"{name}-in", f"{name}-out"
        create_topic(options, source, PARTITIONS)
        create_topic(options, out, PARTITIONS, {"retention.ms": "-1", "segment.ms": "1000"})
        folder = tmp_path / name
        worlds[name] = World(
            spark, forgetful, new_lake(folder / "lake"), folder, source, out, {"until": {"time_limit": "0ms"}}, name
        )
        produce(forgetful.bootstrap, source, *numbered(*range(PARTITIONS)))
        worlds[name].run()

    def known(name):
        found = committed_offsets(kafka, group_id(name, "updates"), f"{name}-in", range(PARTITIONS))
        return sum(mark is not None for mark in found.values())

    assert [known(name) for name in worlds] == [PARTITIONS] * 3
    driver, begun = running(worlds["runs"]), time.monotonic()
    driver.wait("running")
    set_retention(options, "deleted-out", "1000")  # its records are from 1970
    wait_for(lambda: not known("kept") and not known("deleted"), "the broker drops what nobody renews")
    wait_for(lambda: all(earliest(kafka, "deleted-out").values()), "the topic deletes its output")
    while time.monotonic() < begun + 2 * RETENTION_S:
        assert known("runs") == PARTITIONS
        time.sleep(1)
    assert driver.end() is None

    for name in ("runs", "kept"):
        worlds[name].run()
        assert published(forgetful.bootstrap, f"{name}-out") == list(range(PARTITIONS)), name
    with pytest.raises(Undecided) as stopped:
        worlds["deleted"].driver()
    assert "tidegate settle FILE updates" in stopped.value.remedy

    file = tmp_path / "file.yaml"
    file.write_text(yaml.safe_dump(worlds["deleted"].raw))
    settled = CliRunner().invoke(main, ["settle", str(file), "updates", "--published"])
    assert settled.exit_code == 0, settled.output
    assert known("deleted") == PARTITIONS
    before = latest(kafka, "deleted-out")
    produce(forgetful.bootstrap, "deleted-in", *numbered(*range(10, 10 + PARTITIONS)))
    worlds["deleted"].run()
    record_and_end_of_transaction = 2
    after = latest(kafka, "deleted-out")
    assert {after[p] - before[p] for p in before} == {record_and_end_of_transaction}  # deleted at once, as before


def set_retention(options, topic, ms):
    """The topic keeps its records for that long."""
    with admin_client(options, topic) as admin:
        admin.alter_configs([ConfigResource(ConfigResourceType.TOPIC, topic, configs={"retention.ms": ms})])
