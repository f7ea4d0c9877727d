"""Each rule of the commit protocol, by name; no file, no broker."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidegate.contracts.errors import StateError, Superseded
from tidegate.state.protocol_decisions import (
    FIRST_CLOCK_MS,
    Entry,
    Header,
    PublishAction,
    RecoveryMethod,
    Tail,
    Verdict,
    Wanted,
    check_not_superseded,
    choose_state,
    compaction_due,
    decide_from_topics,
    format_mark,
    idle_advance,
    judge_winners,
    newest_old,
    parse_mark,
    unpublished,
    unpublished_above,
)

pytestmark = pytest.mark.fast

LAYOUT = ("tally", 1)
HEADER = Header(
    table_id="t",
    epoch=3,
    batch=7,
    attempt="a7",
    boot_id="boot",
    complete=True,
    durable=False,
    generation=1,
    layout=LAYOUT,
    capacity={},
)
WANTED = Wanted(epoch=3, batch=8, last=(7, "a7"), lineage=((5, "a5"), (7, "a7")))


def method(
    header: Header | None, wanted: Wanted = WANTED, boot: str = "boot", layout: tuple[str, int] = LAYOUT
) -> RecoveryMethod:
    return choose_state(header, wanted, boot, layout).method


# --- local state


def test_no_local_state_is_rebuilt() -> None:
    assert method(None) is RecoveryMethod.REBUILD


def test_a_state_of_the_last_commit_is_used() -> None:
    assert method(HEADER) is RecoveryMethod.GO_ON


def test_a_state_of_the_last_commit_is_used_even_if_the_log_was_compacted_since() -> None:
    assert method(HEADER, replace(WANTED, snapshot=9)) is RecoveryMethod.GO_ON


def test_a_failed_attempt_with_the_same_batch_number_is_rebuilt() -> None:
    assert method(replace(HEADER, attempt="failed")) is RecoveryMethod.REBUILD


FAILED = replace(HEADER, batch=8, attempt="failed", before=(7, "a7"))


def test_a_failed_attempt_is_undone_if_that_restores_the_last_commit() -> None:
    assert choose_state(FAILED, WANTED, "boot", LAYOUT) == (
        RecoveryMethod.UNDO,
        "the local state is that of a failed attempt",
        7,
    )
    assert method(FAILED, replace(WANTED, snapshot=9)) is RecoveryMethod.UNDO


def test_a_committed_attempt_is_used_although_it_could_be_undone() -> None:
    assert method(FAILED, replace(WANTED, last=(8, "failed"))) is RecoveryMethod.GO_ON
    caught_up = replace(WANTED, last=(9, "a9"), lineage=((8, "failed"), (9, "a9")))
    assert method(FAILED, caught_up) is RecoveryMethod.CATCH_UP


def test_a_failed_attempt_above_an_earlier_commit_is_undone_and_caught_up_from_there() -> None:
    plan = choose_state(replace(FAILED, before=(5, "a5")), WANTED, "boot", LAYOUT)
    assert (plan.method, plan.after_batch) == (RecoveryMethod.UNDO, 5)


def test_a_failed_attempt_above_a_commit_before_the_newest_snapshot_is_rebuilt() -> None:
    assert method(replace(FAILED, before=(5, "a5")), replace(WANTED, snapshot=6)) is RecoveryMethod.REBUILD


def test_a_failed_attempt_above_no_commit_of_the_partition_is_rebuilt() -> None:
    assert method(replace(FAILED, before=(7, "failed, too"))) is RecoveryMethod.REBUILD


def test_a_failed_first_attempt_is_undone_where_no_commit_has_touched_the_partition() -> None:
    assert method(replace(FAILED, before=(-1, "")), replace(WANTED, last=None, lineage=())) is RecoveryMethod.UNDO


@pytest.mark.parametrize("harm", [{"complete": False}, {"boot_id": "another"}, {"layout": ("tally", 2)}])
def test_a_failed_attempt_that_cannot_be_trusted_is_not_undone(harm: dict[str, Any]) -> None:
    assert method(replace(FAILED, **harm)) is RecoveryMethod.REBUILD


def test_a_failed_attempt_of_a_later_batch_is_rebuilt() -> None:
    assert method(replace(HEADER, batch=8, attempt="failed")) is RecoveryMethod.REBUILD


def test_an_earlier_commit_of_the_lineage_is_caught_up_from_its_batch() -> None:
    plan = choose_state(replace(HEADER, batch=5, attempt="a5"), WANTED, "boot", LAYOUT)
    assert (plan.method, plan.after_batch) == (RecoveryMethod.CATCH_UP, 5)


def test_a_commit_before_the_newest_snapshot_is_rebuilt_so_that_deleted_keys_stay_deleted() -> None:
    assert method(replace(HEADER, batch=5, attempt="a5"), replace(WANTED, snapshot=6)) is RecoveryMethod.REBUILD


def test_an_earlier_commit_outside_of_the_lineage_is_rebuilt() -> None:
    assert method(replace(HEADER, batch=4, attempt="a4")) is RecoveryMethod.REBUILD


def test_a_dirty_state_is_rebuilt() -> None:
    assert method(replace(HEADER, complete=False)) is RecoveryMethod.REBUILD


def test_after_a_reboot_a_state_that_was_not_durable_is_rebuilt() -> None:
    assert method(HEADER, boot="another") is RecoveryMethod.REBUILD


def test_after_a_reboot_a_durable_state_is_used() -> None:
    assert method(replace(HEADER, durable=True), boot="another") is RecoveryMethod.GO_ON


def test_a_state_of_a_different_layout_is_rebuilt() -> None:
    assert method(HEADER, layout=("tally", 2)) is RecoveryMethod.REBUILD


def test_an_empty_state_is_used_if_no_commit_has_touched_the_partition() -> None:
    assert method(replace(HEADER, batch=-1, attempt=""), replace(WANTED, last=None, lineage=())) is RecoveryMethod.GO_ON


def test_a_failed_first_attempt_is_rebuilt_where_no_commit_has_touched_the_partition() -> None:
    assert method(replace(HEADER, batch=8), replace(WANTED, last=None, lineage=())) is RecoveryMethod.REBUILD


@pytest.mark.parametrize("newer", [(4, 1), (3, 9)])
def test_a_header_with_a_larger_epoch_or_batch_supersedes_the_task(newer: tuple[int, int]) -> None:
    with pytest.raises(Superseded):
        check_not_superseded(replace(HEADER, epoch=newer[0], batch=newer[1]), (3, 8))


@pytest.mark.parametrize("older", [(3, 8), (3, 7), (2, 99)])
def test_a_header_with_the_same_or_a_smaller_epoch_and_batch_is_accepted(older: tuple[int, int]) -> None:
    check_not_superseded(replace(HEADER, epoch=older[0], batch=older[1]), (3, 8))
    check_not_superseded(None, (3, 8))


# --- the fence


def entry(epoch: int | None, attempt: str | None = "other", *, changes_data: bool = True) -> Entry:
    return Entry(version=1, epoch=epoch, attempt=attempt if epoch is not None else None, changes_data=changes_data)


MINE = entry(3, "mine")
OPTIMIZE = entry(None, changes_data=False)
ALTER_TABLE = replace(OPTIMIZE, changes_table=True)
RESTORE = entry(None)


def test_an_attempt_found_in_the_log_after_a_conflict_is_committed() -> None:
    assert judge_winners([MINE], "mine", 3) is Verdict.COMMITTED


def test_a_foreign_optimize_beside_the_own_commit_is_tolerated() -> None:
    assert judge_winners([OPTIMIZE, MINE, OPTIMIZE], "mine", 3) is Verdict.COMMITTED


@pytest.mark.parametrize("above", [[entry(4)], [MINE, entry(4)], [RESTORE, entry(4)]])
def test_a_higher_epoch_fences_even_beside_the_own_commit(above: list[Entry]) -> None:
    assert judge_winners(above, "mine", 3) is Verdict.FENCED


@pytest.mark.parametrize("rival", [3, 2])
def test_a_foreign_commit_of_the_same_or_an_older_epoch_is_an_engine_error(rival: int) -> None:
    assert judge_winners([entry(rival)], "mine", 3) is Verdict.ENGINE_ERROR


def test_a_foreign_commit_of_the_same_epoch_beside_the_own_commit_stops() -> None:
    assert judge_winners([entry(3), MINE], "mine", 3) is Verdict.STOP


@pytest.mark.parametrize("above", [[RESTORE], [MINE, RESTORE], [RESTORE, MINE]])
def test_a_foreign_change_of_data_stops(above: list[Entry]) -> None:
    assert judge_winners(above, "mine", 3) is Verdict.STOP


@pytest.mark.parametrize("above", [[], [OPTIMIZE, ALTER_TABLE], [OPTIMIZE, entry(2)]])
def test_a_conflict_is_an_engine_error_unless_the_foreign_commits_are_harmless(above: list[Entry]) -> None:
    assert judge_winners(above, "mine", 3) is Verdict.ENGINE_ERROR


def test_a_foreign_optimize_only_uses_a_version() -> None:
    assert judge_winners([OPTIMIZE, OPTIMIZE], "mine", 3) is Verdict.TRY_ABOVE


# --- the mark


def settle(mark: str | None, *outputs: int) -> tuple[PublishAction, int | None]:
    return tuple(unpublished(mark, table_id="t", newest_batch=9, outputs=outputs))


@given(st.integers(0, 2**63 - 1))
def test_a_mark_reads_back_as_it_was_written(batch: int) -> None:
    assert parse_mark(format_mark("a-b", batch)) == ("a-b", batch)


@pytest.mark.parametrize("text", ["", "tidegate/1 t", "tidegate/2 t 3", "tidegate/1 t -3", "tidegate/1 t 3 ", "x"])
def test_a_text_in_a_different_format_is_not_a_mark(text: str) -> None:
    assert parse_mark(text) is None


def test_output_up_to_the_mark_is_published() -> None:
    assert settle("tidegate/1 t 9", 3, 9) == (PublishAction.NOTHING, None)


def test_the_one_batch_above_the_mark_is_published() -> None:
    assert settle("tidegate/1 t 3", 3, 9) == (PublishAction.PUBLISH, 9)


def test_several_batches_above_the_mark_are_a_state_error() -> None:
    with pytest.raises(StateError, match="several batches"):
        settle("tidegate/1 t 3", 8, 9)


def test_a_missing_mark_is_resolved_and_never_assumed() -> None:
    assert settle(None, 9) == (PublishAction.RESOLVE, None)


def test_a_missing_mark_without_output_needs_nothing() -> None:
    assert settle(None) == (PublishAction.NOTHING, None)


def test_the_output_s_headers_resolve_a_missing_mark() -> None:
    assert unpublished_above(9, [8, 9]) == (PublishAction.NOTHING, None)
    assert unpublished_above(8, [8, 9]) == (PublishAction.PUBLISH, 9)
    assert unpublished_above(-1, [9]) == (PublishAction.PUBLISH, 9)


@pytest.mark.parametrize(
    ("mark", "problem"),
    [
        ("tidegate/1 t 10", "above the operator log"),
        ("tidegate/1 other 3", "another operator log"),
        ("by hand", "another form"),
    ],
)
def test_a_mark_that_cannot_be_trusted_stops_with_the_remedy(mark: str, problem: str) -> None:
    with pytest.raises(StateError, match=problem) as stopped:
        settle(mark, 9)
    assert "restore the right log" in stopped.value.remedy


# --- idle time and compaction


def test_stream_time_grows_by_the_wall_time_since_the_partition_became_idle() -> None:
    #  records   idle from   now
    #  1000 ---- 1500 ------ 1800
    assert idle_advance(1000, -1, 1800, idle_after=500) == 300


@pytest.mark.parametrize("now", [1000, 1499, 1500])
def test_a_partition_that_is_not_idle_does_not_advance(now: int) -> None:
    assert idle_advance(1000, -1, now, idle_after=500) is None


def test_a_clock_that_went_back_does_not_advance() -> None:
    assert idle_advance(1000, 1800, 1700, idle_after=500) is None


@given(st.lists(st.integers(0, 5_000), min_size=1), st.integers(0, 2_000))
def test_each_part_of_idle_time_counts_once_over_any_number_of_advances(clocks: list[int], idle_after: int) -> None:
    grown, advanced = 0, -1
    for now in sorted(clocks):
        growth = idle_advance(0, advanced, now, idle_after)
        if growth is not None:
            grown, advanced = grown + growth, now
    assert grown == max(max(clocks) - idle_after, 0)


def test_a_compaction_is_due_by_batches_files_or_dead_rows_and_not_earlier() -> None:
    assert compaction_due(batches=512, state_rows=0, held=0, files=0) is not None
    assert compaction_due(batches=64, state_rows=0, held=0, files=1_024) is not None
    assert compaction_due(batches=1, state_rows=400_000, held=100_000, files=0) is not None
    assert compaction_due(batches=511, state_rows=399_999, held=100_000, files=1_023) is None


def test_many_files_right_after_a_compaction_do_not_make_the_next_one_due() -> None:
    assert compaction_due(batches=1, state_rows=0, held=0, files=100_000) is None


# --- an absent mark


def test_output_that_a_topic_shows_was_published() -> None:
    assert decide_from_topics(7, [Tail(7, False)]).what is PublishAction.NOTHING
    assert decide_from_topics(7, [Tail(None, True), Tail(8, False)]).what is PublishAction.NOTHING


def test_output_missing_from_an_otherwise_empty_topic_was_not_published() -> None:
    assert decide_from_topics(7, [Tail(6, True)]) == (PublishAction.PUBLISH, 7)
    assert decide_from_topics(7, [Tail(None, True), Tail(3, False)]) == (PublishAction.PUBLISH, 7)


def test_output_missing_from_a_topic_with_deletions_may_have_been_published() -> None:
    assert decide_from_topics(7, [Tail(None, False)]).what is PublishAction.ASK
    assert decide_from_topics(7, [Tail(6, False), Tail(None, False)]).what is PublishAction.ASK


# --- what is old


NOW, AGE = FIRST_CLOCK_MS + 10**9, 10**6
TIMES = st.lists(st.integers(FIRST_CLOCK_MS, NOW), max_size=30).map(sorted)


@given(TIMES)
def test_with_a_correct_clock_exactly_the_old_batches_are_old(times: list[int]) -> None:
    assert newest_old(times, NOW, AGE) == sum(time < NOW - AGE for time in times) - 1


@given(TIMES, st.data())
def test_a_clock_that_was_not_set_or_ahead_makes_no_new_batch_old(times: list[int], data: st.DataObject) -> None:
    begin, end = sorted(data.draw(st.tuples(*[st.integers(0, len(times))] * 2)))
    wrong = st.one_of(st.integers(0, FIRST_CLOCK_MS - 1), st.integers(NOW + 1, 2**62))
    clocks = [*times[:begin], *data.draw(st.lists(wrong, min_size=end - begin, max_size=end - begin)), *times[end:]]
    right = [place for place, time in enumerate(times) if time < NOW - AGE and not begin <= place < end]
    assert newest_old(clocks, NOW, AGE) == max(right, default=-1)


@given(TIMES, st.data())
def test_after_a_clock_jumps_back_no_batch_after_a_new_one_becomes_old(times: list[int], data: st.DataObject) -> None:
    clocks = [time - data.draw(st.sampled_from([0, 0, 0, 1, AGE, 100 * AGE])) for time in times]
    place = newest_old(clocks, NOW, AGE)
    assert all(clock < NOW - AGE for clock in clocks[: place + 1])
