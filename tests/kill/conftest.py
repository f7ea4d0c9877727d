"""Fixtures of the tests with kills."""

from __future__ import annotations

import time

import pytest

from tests.kill.harness import PARTITIONS
from tests.kill.turns import World


@pytest.fixture
def say(capsys):
    """`say(line)` shows the line at once, with the seconds since the test began."""
    began = time.monotonic()

    def show(line: str) -> None:
        with capsys.disabled():
            print(f"\n[{time.monotonic() - began:5.0f} s] {line}", end="", flush=True)

    return show


@pytest.fixture
def world(broker, topic, tmp_path, say, new_lake):
    """Two applications over one topic of a broker that all tests share."""
    outputs, source = _one_each(topic), topic(partitions=PARTITIONS)
    made = {"source": source, "outputs": outputs, "folder": tmp_path, "say": say, "new_lake": new_lake}
    return World(bootstrap=broker.bootstrap, **made)


@pytest.fixture
def refusing_world(world, topic):
    """The same with topics of dead letters."""
    world.dead_letters = _one_each(topic)
    return world


def _one_each(topic):
    return {name: topic(partitions=PARTITIONS) for name in ("disturbed", "calm")}
