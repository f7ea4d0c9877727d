"""Records lost before they were read: how they are reported, and which losses can be accepted."""

from __future__ import annotations

import pytest

from tests.metadata import described
from tests.runtime.telemetry.test_batch_metrics import meta
from tidegate.contracts.batch_metadata import BatchMeta
from tidegate.contracts.errors import OffsetsGone, UserError
from tidegate.operators.suppression import SuppressionConfig
from tidegate.runtime.batch_loop.next_metadata import after_claim, after_skip
from tidegate.runtime.batch_loop.preflight import check_nothing_lost, lost_ranges
from tidegate.runtime.repair.skip import check_skip, shown

pytestmark = pytest.mark.fast

CONFIG = SuppressionConfig(kind="suppression", input="in", until={"time_limit": "1h"})
READ = described(meta(3, 0, {}), input="in", next_offset={0: 10, 1: 20, 2: 30})


def test_the_ranges_between_the_next_and_the_first_offsets_are_lost() -> None:
    assert lost_ranges(READ, "in", {0: 10, 1: 25, 2: 0}) == {1: (20, 25)}


def test_a_loss_is_reported_for_all_partitions_with_the_command_that_accepts_it() -> None:
    with pytest.raises(OffsetsGone) as told:
        check_nothing_lost(READ, {"in": {0: 12, 1: 25, 2: 30}})
    assert told.value.value == "partition 0: offsets 10 to 11; partition 1: offsets 20 to 24"
    assert told.value.remedy.endswith(f"tidegate skip FILE {READ.operator} 0:10-12 1:20-25")


def test_without_lost_records_there_is_no_error() -> None:
    check_nothing_lost(READ, {"in": {0: 10, 1: 0, 2: 30}})


@pytest.mark.parametrize("named", [{1: (20, 25)}, {1: (20, 22)}, {0: (10, 12), 1: (20, 25)}])
def test_a_loss_can_be_accepted_completely_or_up_to_an_offset(named) -> None:
    check_skip({0: (10, 12), 1: (20, 25)}, named)


@pytest.mark.parametrize("named", [{1: (21, 25)}, {1: (20, 26)}, {1: (20, 20)}, {1: (25, 20)}, {2: (30, 31)}])
def test_existing_records_cannot_be_skipped(named) -> None:
    with pytest.raises(UserError, match="are not those that were lost") as refused:
        check_skip({0: (10, 12), 1: (20, 25)}, named)
    assert refused.value.value == "lost: 0:10-12 1:20-25"


def test_a_skip_is_a_claim_that_moves_the_offsets_and_records_the_ranges() -> None:
    claim = after_claim(READ, attempt="a", clock=9, config="c", topics={})
    skipped = after_skip(claim, {1: (20, 25)})
    assert (skipped.action, skipped.epoch, skipped.batch) == ("skip", READ.epoch + 1, READ.batch + 1)
    assert skipped.next_offsets == {0: 10, 1: 25, 2: 30}
    assert BatchMeta.from_json(skipped.to_json()).skipped == {1: (20, 25)}
    assert after_claim(skipped, attempt="b", clock=9, config="c", topics={}).skipped == {}


def test_ranges_are_shown_in_the_format_of_the_command() -> None:
    assert shown({3: (15, 77), 0: (1, 2)}) == "0:1-2 3:15-77"
