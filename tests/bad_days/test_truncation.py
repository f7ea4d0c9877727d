"""A broker that is restored from a copy: read records are lost, and their offsets are used again."""

from __future__ import annotations

import shutil
from threading import Event

import pytest
import yaml
from click.testing import CliRunner

from tests.bad_days.conftest import numbered, produce, published
from tests.end_to_end.conftest import PARTITIONS, World
from tidegate.cli.main import main
from tidegate.contracts.errors import InputTruncated
from tidegate.devkit.embedded_broker import Broker
from tidegate.runtime.batch_loop.driver import OperatorDriver, Wiring
from tidegate.runtime.install import paths
from tidegate.runtime.kafka.topics import create_topic


def test_a_truncated_input_stops_the_operator_even_if_it_has_grown_again(spark, tmp_path, new_lake):
    """Partition 0: 0 and 8 are read; 8 is lost, then 16 and 20 are produced to the offsets from 8's on."""
    folder, jars = tmp_path / "broker", paths.jars("broker")
    broker = Broker.start(folder, jars)
    try:
        options = {"bootstrap.servers": broker.bootstrap}
        for topic in ("in", "out"):
            create_topic(options, topic, PARTITIONS)
        here = World(
            spark, broker, new_lake(tmp_path / "lake"), tmp_path, "in", "out", {"until": {"time_limit": "0ms"}}
        )

        def run():
            wiring = Wiring(spark=spark, application=here.application, name=here.name)
            OperatorDriver(wiring).run(Event(), until_caught_up=True)

        produce(broker.bootstrap, "in", *numbered(*range(PARTITIONS)))
        run()
        broker = restarted(broker, folder, jars, lambda: shutil.copytree(folder / "topics/in-0", tmp_path / "copy"))
        produce(broker.bootstrap, "in", *numbered(8, 9))
        run()
        broker = restarted(broker, folder, jars, lambda: put_back(tmp_path / "copy", folder / "topics/in-0"))
        with pytest.raises(InputTruncated) as stopped:
            run()
        assert stopped.value.value == "partition 0: offsets 1 to 1"
        produce(broker.bootstrap, "in", *numbered(16, 20))
        with pytest.raises(InputTruncated) as stopped:
            run()
        assert stopped.value.remedy.endswith(f"tidegate skip FILE {here.name} 0:2-1")

        file = tmp_path / "file.yaml"
        file.write_text(yaml.safe_dump(here.raw))
        accepted = CliRunner().invoke(main, ["skip", str(file), here.name, "0:2-1"])
        assert accepted.exit_code == 0, accepted.output
        run()
        assert published(broker.bootstrap, "out") == [0, 1, 2, 3, 8, 9, 16, 20]
    finally:
        broker.stop()


def restarted(broker, folder, jars, meanwhile):
    """The broker at the same address, after something was done to its folder."""
    broker.stop()
    meanwhile()
    return Broker.start(folder, jars, port=broker.port)


def put_back(copy, partition):
    shutil.rmtree(partition)
    shutil.copytree(copy, partition)
