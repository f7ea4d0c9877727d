"""Under which changes of the configuration the held state can continue."""

from __future__ import annotations

from typing import Any

import pytest

from tests.metadata import described, small_meta
from tidegate.contracts.batch_metadata import BatchMeta, Counts
from tidegate.contracts.config.operator_config import OperatorConfig
from tidegate.contracts.errors import UserError
from tidegate.operators.suppression import SuppressionConfig
from tidegate.operators.windowed_aggregation.config import WindowedAggregationConfig
from tidegate.runtime.configuration.application import config_hash, settings_of
from tidegate.runtime.configuration.changes import changes_since, check_changes, remembered

pytestmark = pytest.mark.fast

HOUR = 3_600_000


def windows(grace: str, **more: Any) -> WindowedAggregationConfig:
    """Final counts of an hour."""
    window = {"tumbling": "1h", "grace": grace}
    aggregate = {"aggregate": {"count": True}, "emit": "final"}
    return WindowedAggregationConfig.model_validate(
        {"input": "in", "output": "out", "window": window, **aggregate, **more}
    )


def log_under(config: OperatorConfig, hours: int, records: int = 9) -> BatchMeta:
    """What the log says of an operator whose only partition is at that stream time."""
    totals = {0: Counts(records_in=records, applied=records, held=records)}
    known = {"last": {0: (3, "a")}, "stream_time": {0: hours * HOUR}, "totals": totals}
    return claimed(small_meta(format=1, operator="counts", batch=3, config="", input="in", **known), config)


def claimed(newest: BatchMeta, config: OperatorConfig) -> BatchMeta:
    """The log once the configuration is claimed."""
    known = remembered(newest, config)
    return described(newest, config=config_hash(config), settings=settings_of(config), remembered_from=known)


def later(newest: BatchMeta, hours: int) -> BatchMeta:
    """The log at another stream time."""
    return described(newest, stream_time={0: hours * HOUR})


def test_a_longer_grace_needs_closed_windows_that_are_actually_kept() -> None:
    """
    hours  0 ......... 9 10 ............ 15 16
    known              |<- retention 1h        from 9 on nothing is forgotten any more
    grace 5h needs                 6h ->|      16 - 6 = 10: known; 14 - 6 = 8: not
    """
    log = claimed(log_under(windows("0ms"), 10), windows("0ms", retention="100h"))
    longer = windows("5h", retention="100h")
    for hours in (10, 14):
        with pytest.raises(UserError, match="cannot continue"):
            check_changes(later(log, hours), longer)
    check_changes(later(log, 15), longer)
    assert [change.option for change in changes_since(later(log, 15), longer)] == ["window"]


def test_an_earlier_shorter_retention_counts() -> None:
    log = log_under(windows("0ms", retention="100h"), 200)
    log = claimed(claimed(log, windows("0ms", retention="2h")), windows("0ms", retention="100h"))
    assert log.partitions[0].remembered_from == 198 * HOUR
    with pytest.raises(UserError, match="would open again"):
        check_changes(log, windows("5h", retention="100h"))
    check_changes(log, windows("1h", retention="100h"))


def test_shortening_the_retention_again_does_not_change_what_was_forgotten() -> None:
    log = claimed(log_under(windows("0ms"), 10), windows("0ms", retention="100h"))
    log = claimed(later(log, 11), windows("0ms", retention="50h"))
    assert log.partitions[0].remembered_from == 9 * HOUR
    assert BatchMeta.from_json(log.to_json()).partitions[0].remembered_from == 9 * HOUR


def test_a_different_kind_is_refused_from_the_first_claim_on() -> None:
    updates = {"input": "in", "output": "out", "until": {"time_limit": "1h"}}
    with pytest.raises(UserError, match="the state of one kind"):
        check_changes(log_under(windows("0ms"), 0, records=0), SuppressionConfig.model_validate(updates))


def test_nothing_is_refused_while_no_record_was_read() -> None:
    log = log_under(windows("0ms"), 0, records=0)
    other = windows("0ms").model_copy(update={"emit": "updates"})
    [change] = changes_since(log, other)
    assert (change.option, change.refused) == ("emit", None)
    check_changes(log, other)
    with pytest.raises(UserError):
        check_changes(log_under(windows("0ms"), 0), other)
