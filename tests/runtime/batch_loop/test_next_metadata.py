"""How results become the metadata of a commit."""

from dataclasses import replace

import pytest

from tests.metadata import described, of_each
from tests.runtime.telemetry.test_batch_metrics import meta
from tidegate.contracts.batch_metadata import BatchMeta, Counts
from tidegate.contracts.errors import StateError
from tidegate.runtime.batch_loop.next_metadata import after_batch, after_claim, after_compaction
from tidegate.runtime.task.messages import PartitionResult
from tidegate.state.protocol_decisions import RecoveryMethod, RecoveryPlan

pytestmark = pytest.mark.fast

CLAIM = described(meta(0, 0, {}), input="in", next_offset=dict.fromkeys(range(3), 0))


def result(partition, counts, next_offset=10, action="batch"):
    return PartitionResult(
        partition=partition,
        action=action,
        next_offset=next_offset,
        stream_time=1_000 + partition,
        counts=counts,
        measures={},
        files=(),
        transaction=None,
    )


def test_metadata_is_complete_for_partitions_that_took_no_part():
    first = after_batch(
        CLAIM,
        [result(p, Counts(records_in=1, applied=1, held=1)) for p in range(3)],
        batch=1,
        attempt="x",
        clock=5,
    )
    second = after_batch(
        first,
        [result(1, Counts(records_in=2, superseded=2, held=1, emitted=1), 12)],
        batch=2,
        attempt="y",
        clock=9,
    )
    assert second.next_offsets == {0: 10, 1: 12, 2: 10}
    assert of_each(second, "last") == {0: (1, "x"), 1: (2, "y"), 2: (1, "x")}
    assert second.partitions[1].totals == Counts(records_in=3, applied=1, superseded=2, emitted=1, held=1)
    assert of_each(second, "output_batch") == {0: -1, 1: 2, 2: -1}
    assert of_each(second, "active_clock") == {0: 5, 1: 9, 2: 5}
    assert set(second.changed) == {1}


def test_a_batch_whose_counts_do_not_balance_is_not_committed():
    with pytest.raises(StateError, match="exactly one count"):
        after_batch(CLAIM, [result(0, Counts(records_in=3, applied=2))], batch=1, attempt="x", clock=5)


def test_an_idle_advance_does_not_count_as_activity():
    moved = after_batch(CLAIM, [result(0, Counts(), action="idle")], batch=1, attempt="x", clock=5)
    known = moved.partitions[0]
    assert (known.active_clock, known.advanced_clock, moved.action) == (-1, 5, "idle")


def test_a_claim_and_a_compaction_take_a_batch_each_and_keep_last():
    before = after_batch(CLAIM, [result(0, Counts(records_in=1, applied=1))], batch=1, attempt="x", clock=5)
    claimed = after_claim(before, attempt="c", clock=6, config="h", topics={"in": "id"})
    compacted = after_compaction(claimed, [0], attempt="k", clock=7)
    assert (claimed.epoch, claimed.batch) == (before.epoch + 1, 2)
    assert (compacted.epoch, compacted.batch, compacted.partitions[0].snapshot_batch) == (claimed.epoch, 3, 3)
    assert of_each(compacted, "last") == of_each(before, "last")


def test_metadata_round_trips_through_json():
    before = after_batch(CLAIM, [result(0, Counts(records_in=1, applied=1))], batch=1, attempt="x", clock=5)
    assert BatchMeta.from_json(before.to_json()) == before


def test_a_batch_lists_the_recovered_states_and_the_next_commit_does_not():
    """Partition 2 is new: its state did not come back, there was none."""
    ways = {
        0: RecoveryPlan(RecoveryMethod.GO_ON, "it is the partition's last"),
        1: RecoveryPlan(RecoveryMethod.REBUILD, "it is damaged"),
        2: RecoveryPlan(RecoveryMethod.REBUILD, "none"),
    }
    before = described(CLAIM, last={0: (0, "x"), 1: (0, "x")})
    results = [replace(result(p, Counts(records_in=1, applied=1)), recovery=way) for p, way in ways.items()]
    batch = after_batch(before, results, batch=1, attempt="y", clock=5)
    recovered = [change.recovered for _partition, change in sorted(batch.changed.items())]
    assert recovered == [None, "rebuild: it is damaged", None]
    assert BatchMeta.from_json(batch.to_json()) == batch
    assert after_compaction(batch, [], attempt="k", clock=6).changed == {}
    assert after_claim(batch, attempt="c", clock=6, config="h", topics={}).changed == {}
