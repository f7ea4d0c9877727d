"""The observation of a driver; Spark and the broker are stand-ins."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest

from tests.patience import wait_for
from tests.runtime.miniature import NAME, Jobs, application, driver_of, use_broker
from tests.runtime.scripted_kafka import ScriptedKafka
from tidegate.runtime.batch_loop import background_compaction
from tidegate.runtime.batch_loop.claimed_operator import ClaimedOperator
from tidegate.runtime.batch_loop.driver import OperatorDriver
from tidegate.runtime.telemetry.telemetry import Telemetry

pytestmark = pytest.mark.fast


@pytest.fixture
def one(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> OperatorDriver:
    """A driver that has not started; five records are committed in each of two partitions."""
    broker = ScriptedKafka()
    broker.stable, broker.ends = {0: 5, 1: 5}, {0: 9, 1: 9}
    use_broker(monkeypatch, broker)
    return driver_of(application(tmp_path), Jobs())


def test_a_driver_that_is_still_starting_is_visible(one: OperatorDriver) -> None:
    seen = one.observe()
    assert (seen.operator, seen.newest, seen.loop_age_s, seen.status.state) == (NAME, None, None, "drained")
    telemetry = Telemetry(one._application)
    telemetry.watch([one])
    assert telemetry.metrics("").status == 200
    assert json.loads(telemetry.readyz("").body)["ready"] is False


def test_an_observation_has_the_newest_commit_and_the_end_offsets(one: OperatorDriver) -> None:
    one._run_owned(ClaimedOperator.round)
    seen = one.observe()
    assert seen.newest is one.claim.operator.newest
    assert seen.ends == {"in": {0: 5, 1: 5}}
    assert seen.files == 0
    one.claim.operator.compact()
    assert one.observe().files == len(one.claim.operator.log.data_files("meta")) == 1
    assert seen.loop_age_s is not None and seen.loop_age_s < 60


def test_a_loop_s_age_grows_until_its_next_round(one: OperatorDriver) -> None:
    one._run_owned(ClaimedOperator.round)
    time.sleep(0.05)
    age_s, turned = one.observe().loop_age_s, one._last_try_at
    assert age_s is not None and turned is not None and age_s >= 0.05
    one._run_owned(ClaimedOperator.round)
    assert one._last_try_at is not None and one._last_try_at >= turned + 0.05


def test_compactions_are_counted_in_the_foreground_and_in_the_background(
    one: OperatorDriver, monkeypatch: pytest.MonkeyPatch
) -> None:
    one._run_owned(ClaimedOperator.round)
    one.claim.operator.compact()
    assert one.observe().compactions == 1
    monkeypatch.setattr(background_compaction, "due", lambda log, newest, _max_batches: one.observe().compactions == 1)
    monkeypatch.setattr(
        Jobs, "each_sequentially", lambda self, work, items: [work(item) for item in items], raising=False
    )

    def compacted_again() -> bool:
        one._run_owned(ClaimedOperator.round)
        return one.observe().compactions == 2

    wait_for(compacted_again)
    assert one.claim.operator.newest.action == "compaction"
    assert one.observe().compaction_s > 0
