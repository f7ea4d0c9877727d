"""An input that loses records after they were read: leader epochs reveal it, even if the input has grown again."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest

from tests.metadata import described, of_each
from tests.runtime.kafka.peers import columns
from tests.runtime.miniature import NAME, Jobs, application, driver_of, use_broker
from tests.runtime.scripted_kafka import ScriptedKafka
from tests.runtime.telemetry.test_batch_metrics import meta
from tidegate.contracts.batch_metadata import BatchMeta
from tidegate.contracts.errors import InputTruncated, UserError
from tidegate.contracts.records import Row
from tidegate.kernels.record_format.record_batch import encode
from tidegate.operators.suppression import SuppressionConfig
from tidegate.runtime.batch_loop.claimed_operator import ClaimedOperator
from tidegate.runtime.batch_loop.next_metadata import after_claim, after_skip
from tidegate.runtime.batch_loop.planning import PlanBasis, plan_records
from tidegate.runtime.batch_loop.preflight import check_nothing_truncated, truncated_ranges
from tidegate.runtime.kafka.fetch import fetch
from tidegate.runtime.kafka.positions import epoch_before
from tidegate.runtime.repair import skip as skipping
from tidegate.runtime.repair.skip import check_skip

pytestmark = pytest.mark.fast

CONFIG = SuppressionConfig(kind="suppression", input="in", until={"time_limit": "1h"})
READ = described(meta(3, 0, {}), input="in", next_offset={0: 100, 1: 20, 2: 30}, leader_epoch={0: 5, 1: 5})


@pytest.fixture
def kafka(monkeypatch: pytest.MonkeyPatch) -> ScriptedKafka:
    scripted = ScriptedKafka()
    use_broker(monkeypatch, scripted)
    return scripted


@pytest.fixture
def jobs() -> Jobs:
    return Jobs()


def batches(first: int, *epochs: int) -> bytes:
    """Batches of one record each, from that offset on, of these leader epochs."""
    made = b""
    for offset, epoch in enumerate(epochs, first):
        rows = [Row(b"k", b"v", 1, offset)]
        [batch] = encode(columns(rows), None, producer_id=-1, producer_epoch=-1, base_sequence=-1, max_batch_bytes=999)
        made += struct.pack(">q", offset) + batch.data[8:12] + struct.pack(">i", epoch) + batch.data[16:]
    return made


def read(kafka: ScriptedKafka, start: int, end: int, epoch: int):
    return fetch(kafka, "in", 0, start, end, max_bytes=2**20, deadline_s=5, epoch=epoch)  # type: ignore[arg-type]


def test_a_fetch_sends_the_last_leader_epoch_and_returns_that_of_the_records_read() -> None:
    kafka, asked = ScriptedKafka(), []

    def answer(offset: int, epoch: int) -> tuple[int, bytes]:
        asked.append((offset, epoch))
        return -1, batches(10, 3, 4) if offset == 10 else batches(12, 4, 6, 7)

    kafka.fetched[0] = answer
    got = read(kafka, 10, 14, epoch=2)
    assert asked == [(10, 2), (12, 4)]
    assert (got.next_offset, got.epoch, len(got.records)) == (14, 6, 4)  # 7 is that of offset 14


def test_if_read_records_are_missing_nothing_is_read() -> None:
    kafka = ScriptedKafka()
    kafka.fetched[0] = lambda _offset, _epoch: (60, batches(100, 7))
    with pytest.raises(InputTruncated, match="in/0 has lost records") as stopped:
        read(kafka, 100, 101, epoch=5)
    assert stopped.value.value == "offsets 60 to 99, of leader epoch 5"


@pytest.mark.parametrize(("end", "epoch_end", "lost"), [(60, -1, 60), (60, 60, 60), (130, 60, 60), (130, -1, None)])
def test_a_log_or_leader_epoch_that_ends_before_the_next_offset_is_a_truncation(
    end: int, epoch_end: int, lost: int | None
) -> None:
    """Offset 100 of partition 0 was reached in leader epoch 5; the last case has lost nothing."""
    kafka = ScriptedKafka()
    kafka.topics["in"] = ("id of in", 3)
    kafka.ends = {0: end, 1: 20, 2: 31}
    kafka.epoch_ends = {(0, 5): (5, epoch_end), (1, 5): (5, 20)}
    found = truncated_ranges(kafka, READ, "in")  # type: ignore[arg-type]
    assert found == ({} if lost is None else {0: (100, lost)})


def test_a_truncation_is_reported_with_the_command_that_accepts_it() -> None:
    kafka = ScriptedKafka()
    kafka.topics["in"] = ("id of in", 3)
    kafka.ends = {0: 60, 1: 20, 2: 29}
    with pytest.raises(InputTruncated) as told:
        check_nothing_truncated(kafka, READ)  # type: ignore[arg-type]
    assert told.value.value == "partition 0: offsets 60 to 99; partition 2: offsets 29 to 29"
    assert told.value.remedy.endswith(f"tidegate skip FILE {READ.operator} 0:100-60 2:30-29")


def test_a_driver_stops_if_the_input_ends_before_its_next_offset(
    jobs: Jobs, kafka: ScriptedKafka, tmp_path: Path
) -> None:
    driver = driver_of(application(tmp_path), jobs)
    kafka.stable = kafka.ends = {0: 5, 1: 5}
    driver._run_owned(ClaimedOperator.round)
    kafka.stable = kafka.ends = {0: 4, 1: 5}
    with pytest.raises(InputTruncated, match="in has lost records"):
        driver.claim.operator.round()


def test_if_a_task_finds_a_truncation_the_driver_names_all_ranges(
    jobs: Jobs, kafka: ScriptedKafka, tmp_path: Path
) -> None:
    """Both partitions have grown past what was read."""
    driver = driver_of(application(tmp_path), jobs)
    kafka.stable = kafka.ends = {0: 5, 1: 5}
    driver._run_owned(ClaimedOperator.round)
    driver.claim.operator.newest = described(driver.claim.operator.newest, leader_epoch={0: 1, 1: 1})
    kafka.stable = kafka.ends = {0: 9, 1: 9}
    kafka.epoch_ends = {(0, 1): (1, 2), (1, 1): (1, 3)}

    def diverging(_attempt: object) -> None:
        raise InputTruncated("in/0 has lost records")

    jobs.before = diverging
    with pytest.raises(InputTruncated) as stopped:
        driver.claim.operator.round()
    assert stopped.value.value == "partition 0: offsets 2 to 4; partition 1: offsets 3 to 4"


def test_a_plan_has_the_leader_epoch_of_the_last_record_and_the_log_stores_it() -> None:
    plans = plan_records(PlanBasis(READ, {}, {}), {"in": {0: 110, 2: 31}})
    assert [(plan.partition, plan.epoch) for plan in plans] == [(0, 5), (2, -1)]
    assert BatchMeta.from_json(READ.to_json()).partitions == READ.partitions


@pytest.mark.parametrize("named", [{0: (100, 59)}, {0: (100, 61)}, {0: (99, 60)}, {0: (60, 100)}])
def test_a_truncation_is_accepted_only_back_to_the_last_remaining_record_read(named) -> None:
    check_skip({0: (100, 60)}, {0: (100, 60)})
    with pytest.raises(UserError):
        check_skip({0: (100, 60)}, named)


def test_after_an_accepted_loss_the_former_leader_epoch_does_not_count() -> None:
    claim = after_claim(READ, attempt="a", clock=9, config="c", topics={})
    skipped = after_skip(claim, {0: (100, 60)})
    assert (skipped.partitions[0].next_offset, skipped.skipped) == (60, {0: (100, 60)})
    assert of_each(skipped, "leader_epoch") == {0: -1, 1: 5, 2: -1}
    assert of_each(after_skip(claim, {0: (100, 60)}, {0: 4}), "leader_epoch") == {0: 4, 1: 5, 2: -1}


@pytest.mark.parametrize(
    ("offset", "newest", "epoch"),
    [
        (60, 9, 5),  # what was read of 7 is gone
        (60, 6, 5),  # the broker has never seen 6
        (81, 9, 7),
        (80, 9, 5),  # 7 begins there
        (40, 9, 2),
        (30, 9, None),  # nothing is before the first offset that is still there
        (30, 1, None),
        (60, 10, None),  # newer than all that the broker knows
    ],
)
def test_the_leader_epoch_before_an_offset_is_that_of_the_record_there(
    offset: int, newest: int, epoch: int | None
) -> None:
    kafka = ScriptedKafka()
    kafka.epoch_ends = answers_to_epochs({2: 30, 5: 40, 7: 80, 9: 120}, end=130)
    assert epoch_before(kafka, "in", 0, offset, newest) == epoch  # type: ignore[arg-type]


def answers_to_epochs(begins: dict[int, int], end: int) -> dict[tuple[int, int], tuple[int, int]]:
    """What a broker says of partition 0, whose leader epochs begin there: before the first one whatever it is asked."""
    ends = dict(zip(begins, [*begins.values(), end][1:], strict=True))
    answers = {}
    for asked in range(max(begins) + 1):
        older = [epoch for epoch in begins if epoch <= asked]
        answers[0, asked] = (older[-1], ends[older[-1]]) if older else (asked, min(begins.values()))
    return answers


def test_after_a_skip_back_leader_epochs_detect_the_next_truncation(
    jobs: Jobs, kafka: ScriptedKafka, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Partition 0 was read up to 100 in epoch 7 and is cut at 60, in 5. It is cut again, and grows past 60."""
    use_broker(monkeypatch, kafka)
    given, first = application(tmp_path), driver_of(application(tmp_path), jobs)
    jobs.epoch, kafka.stable = 7, {0: 100, 1: 5}
    kafka.ends = kafka.stable
    first._run_owned(ClaimedOperator.round)
    kafka.ends, kafka.epoch_ends = {0: 60, 1: 5}, answers_to_epochs({2: 0, 5: 40, 9: 60}, end=60)
    kafka.epoch_ends[1, 7] = (7, 5)
    skipping.skip(given, NAME, {0: (100, 60)})
    kafka.stable = kafka.ends = {0: 70, 1: 5}
    kafka.epoch_ends = answers_to_epochs({2: 0, 5: 40, 11: 50}, end=70)
    kafka.epoch_ends[1, 7] = (7, 5)
    jobs.before = lambda _attempt: read(kafka, jobs.plans[0].start, 70, jobs.plans[0].epoch)
    kafka.fetched[0] = lambda offset, epoch: (50 if (offset, epoch) == (60, 5) else -1, batches(60, *[11] * 10))
    second = driver_of(given, jobs)
    with pytest.raises(InputTruncated) as stopped:
        second._run_owned(ClaimedOperator.round)
    assert stopped.value.value == "partition 0: offsets 50 to 59"
