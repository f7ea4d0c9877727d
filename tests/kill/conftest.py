"""What the tests with kills share."""

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
def world(broker, topic, tmp_path, say):
    """Two applications over one topic of a broker that all tests share."""
    outputs = {name: topic(partitions=PARTITIONS) for name in ("disturbed", "calm")}
    source = topic(partitions=PARTITIONS)
    return World(bootstrap=broker.bootstrap, source=source, outputs=outputs, folder=tmp_path, say=say)
