"""Does a Spark checkpoint belong to a log, and is its batch to be run?"""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.metadata import described
from tidegate.contracts.batch_metadata import BatchMeta
from tidegate.contracts.errors import StateError
from tidegate.contracts.event_time import ALWAYS
from tidegate.runtime.batch_loop.planning import PlanBasis, plan_stream
from tidegate.runtime.stream.decisions import (
    BatchDecision,
    check_same_input,
    check_same_query,
    decide_batch,
    first_meta,
)
from tidegate.runtime.task.messages import Hold

pytestmark = pytest.mark.fast

FRESH = first_meta("updates", "table", 0, 3)
WRITTEN = replace(FRESH, batch=7, query_id="q", query_batch=4)


def test_a_log_without_data_accepts_any_query():
    check_same_query(FRESH, None, "folder")
    check_same_query(FRESH, "q", "folder")
    assert decide_batch(FRESH, "q", 0) is BatchDecision.RUN


def test_the_next_batch_of_the_same_query_is_run():
    check_same_query(WRITTEN, "q", "folder")
    assert decide_batch(WRITTEN, "q", 5) is BatchDecision.RUN


def test_a_batch_that_is_committed_is_skipped():
    assert decide_batch(WRITTEN, "q", 4) is BatchDecision.SKIP


def test_a_deleted_checkpoint_is_refused_with_the_remedy():
    with pytest.raises(StateError, match="checkpoint folder is gone") as refused:
        check_same_query(WRITTEN, None, "folder")
    assert "bring that query's checkpoint folder back" in refused.value.remedy
    assert "a new name" in refused.value.remedy


def test_a_different_query_is_refused_with_the_remedy():
    for refuse in (lambda: check_same_query(WRITTEN, "other", "folder"), lambda: decide_batch(WRITTEN, "other", 5)):
        with pytest.raises(StateError, match="another Spark query") as refused:
            refuse()
        assert "a new name" in refused.value.remedy


@pytest.mark.parametrize(
    ("spark_batch", "behind"), [(6, "the log"), (3, "Spark's checkpoint"), (0, "Spark's checkpoint")]
)
def test_a_log_or_checkpoint_restored_to_an_earlier_state_is_refused(spark_batch, behind):
    with pytest.raises(StateError, match=f"{behind} was set back"):
        decide_batch(WRITTEN, "q", spark_batch)


def test_a_log_that_lost_its_first_batches_is_refused():
    with pytest.raises(StateError, match="the log was set back"):
        decide_batch(FRESH, "q", 3)


def test_the_number_of_partitions_is_fixed_in_the_log():
    check_same_input(WRITTEN, 3)
    with pytest.raises(StateError, match="a different number of partitions") as refused:
        check_same_input(WRITTEN, 4)
    assert "partitions=3" in refused.value.remedy


def test_the_log_of_a_topic_is_refused():
    with pytest.raises(StateError, match="written from a Kafka topic"):
        check_same_input(replace(WRITTEN, input="departures"), 3)


def test_the_fields_of_a_query_survive_the_log():
    meta = described(WRITTEN, query_offset={0: 5, 1: 0, 2: 9})
    assert BatchMeta.from_json(meta.to_json()) == meta


def test_a_plan_has_the_floor_of_the_log():
    plans = plan_stream(PlanBasis(described(FRESH, floor={1: 70}), {}, {}))
    assert [plans[partition].hold for partition in range(3)] == [None, Hold(70, ALWAYS), None]
