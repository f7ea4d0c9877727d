"""Which steps of a pipeline may change while it holds something, and why others may not."""

from __future__ import annotations

from typing import Any

import pytest

from tests.metadata import small_meta
from tidegate.contracts.batch_metadata import BatchMeta, Counts
from tidegate.contracts.config.base import read
from tidegate.contracts.errors import UserError
from tidegate.operators.pipeline.config import PipelineConfig
from tidegate.runtime.configuration.application import config_hash, settings_of
from tidegate.runtime.configuration.changes import Change, changes, changes_since, check_changes

pytestmark = pytest.mark.fast

HELD = {"name": "held", "kind": "suppression", "until": {"time_limit": "1h"}}
FIRST = {"name": "first", "kind": "deduplicate", "within": "10m", "grace": "1h"}
DELAY = {"value": {"json": {"delay": "int64"}}}


def pipeline(*steps: dict[str, Any], **options: Any) -> PipelineConfig:
    return read(PipelineConfig, {"input": "in", "steps": list(steps), **options})


def counted(name: str = "counts", grace: str = "10m", **more: Any) -> dict[str, Any]:
    window = {"tumbling": "1h", "grace": grace}
    return {"name": name, "kind": "windowed_aggregation", "window": window, "aggregate": {"count": True}, **more}


COUNTS = counted(emit="updates")


def refused(found: list[Change]) -> dict[str, str]:
    return {change.option: change.refused for change in found if change.refused}


def allowed(found: list[Change]) -> list[str]:
    assert not refused(found)
    return [change.option for change in found]


def holding(config: PipelineConfig, **held: int) -> BatchMeta:
    """What the log says when the steps hold that much."""
    totals, measured = (
        Counts(records_in=9, applied=9, held=sum(held.values())),
        {f"{s}.held_now": n for s, n in held.items()},
    )
    known = {"last": {0: (3, "a")}, "stream_time": {0: 9}, "totals": {0: totals}, "measured": {0: measured}}
    return small_meta(batch=3, config=config_hash(config), settings=settings_of(config), input="in", **known)


def test_each_step_changes_by_the_rules_of_its_kind() -> None:
    before = pipeline(FIRST, HELD)
    assert allowed(changes(before, pipeline(FIRST, HELD | {"until": {"time_limit": "5s"}}))) == ["steps.held.until"]
    longer = refused(changes(before, pipeline(FIRST | {"within": "2h"}, HELD)))
    assert list(longer) == ["steps.first.within"]
    assert "would be passed on again" in longer["steps.first.within"]


def test_a_suppression_behind_windows_changes_its_grace_with_theirs() -> None:
    final = {"name": "final", "kind": "suppression", "until": "window_close"}
    before, after = (pipeline(counted(grace=grace, emit="updates"), final) for grace in ("10m", "1m"))
    assert allowed(changes(before, after)) == ["steps.counts.window", "steps.final.grace"]
    assert set(refused(changes(after, before))) == {"steps.counts.window", "steps.final.grace"}


SEVERAL = {"flat_map": "tidegate.operators.testing.batch_functions:repeated", "emits": {"n": "int64"}}


def one(step: str) -> int:
    """Every step holds one row."""
    return 1


def test_flat_map_before_a_step_that_reads_the_input_neither_comes_nor_goes_while_that_holds_something() -> None:
    before, after = pipeline(FIRST), pipeline(SEVERAL, FIRST)
    for was, now in ((before, after), (after, before)):
        assert "first holds 1" in refused(changes(was, now, held=one))["steps.first.from"]
        assert allowed(changes(was, now)) == ["steps.first.from", "steps before first"]
    assert allowed(changes(before, pipeline(FIRST, SEVERAL), held=one)) == ["steps behind the last"]


def test_options_of_the_input_are_those_of_the_pipeline_alone() -> None:
    before = pipeline(FIRST, HELD, max_ahead="1h", timestamp={"field": "at"})
    assert allowed(changes(before, pipeline(FIRST, HELD, max_ahead="2h", timestamp={"field": "at"}))) == ["max_ahead"]
    found = changes(before, pipeline(HELD, max_ahead="1h", timestamp={"field": "at"}))
    assert allowed(found) == ["steps.first", "steps.held.from"]


def test_a_step_of_another_kind_and_name_are_another_step() -> None:
    before = pipeline(FIRST | {"name": "it"}, HELD)
    found = refused(changes(before, pipeline(HELD | {"name": "it"}, HELD)))
    assert found == {"steps.it.kind": "the state of one kind cannot become that of another"}


def test_stateless_steps_are_free_and_what_is_held_was_made_by_the_former_ones() -> None:
    before = pipeline({"filter": "delay > 1"}, HELD, {"filter": "delay > 2"}, **DELAY)
    after = pipeline({"require": "delay > 1", "reason": "early"}, HELD, {"filter": "delay > 3"}, **DELAY)
    first, last = changes(before, after)
    assert (first.option, first.after) == ("steps before held", [{"require": "delay > 1", "reason": "early"}])
    assert first.note == "what is held behind them was made by the former steps"
    assert (last.option, last.note) == ("steps behind the last", None)
    assert not refused([first, last])


def test_a_new_step_that_holds_state_goes_to_the_end() -> None:
    before = pipeline(HELD)
    [added] = changes(before, pipeline(HELD, FIRST))
    assert (added.option, added.refused) == ("steps.first", None)
    assert "it starts empty" in (added.note or "")
    found = refused(changes(before, pipeline(FIRST, HELD)))
    assert list(found) == ["steps.first"]
    assert "to the end of a branch" in found["steps.first"]


def test_steps_that_hold_state_keep_their_order() -> None:
    found = refused(changes(pipeline(HELD, FIRST), pipeline(FIRST, HELD)))
    assert found == {"steps": "steps that hold state keep their order: another order is another pipeline"}


def test_a_step_that_is_removed_holds_nothing() -> None:
    before, after = pipeline(HELD, FIRST), pipeline(HELD)
    with pytest.raises(UserError, match="cannot continue") as told:
        check_changes(holding(before, held=2, first=7), after)
    assert "steps.first: first holds 7: let `tidegate flush` release it" in str(told.value.value)
    check_changes(holding(before, held=2, first=0), after)


def test_a_log_that_never_measured_its_steps_counts_as_holding_in_each() -> None:
    before = pipeline(HELD, FIRST)
    log = holding(before, held=3, first=0)
    unmeasured = small_meta(
        settings=log.settings, config=log.config, totals={0: log.partitions[0].totals}, last={0: (1, "a")}
    )
    assert refused(changes_since(unmeasured, pipeline(HELD)))


def test_the_first_step_is_removed_only_if_the_next_one_holds_nothing() -> None:
    before, after = pipeline(FIRST, HELD, COUNTS), pipeline(HELD, COUNTS)
    assert "held holds 2" in refused(changes_since(holding(before, first=0, held=2, counts=0), after))["steps.first"]
    check_changes(holding(before, first=0, held=0, counts=5), after)


TYPED = {"string": {"with_columns": {"late": "CAST(delay AS varchar)"}}, "int64": {"with_columns": {"late": "delay"}}}


def test_columns_that_a_step_holds_keep_their_type() -> None:
    before, after = (pipeline(TYPED[type], HELD, **DELAY) for type in ("int64", "string"))
    found = refused(changes(before, after))
    assert found == {"steps.held.input.late": "held holds values whose field late is of type int64"}
    more = pipeline(TYPED["int64"], {"with_columns": {"more": "delay + 1"}}, HELD, **DELAY)
    assert allowed(changes(before, more)) == ["steps before held"]


def test_a_step_that_holds_keys_alone_or_reads_other_fields_does_not_mind() -> None:
    largest = {"aggregate": {"max": {"field": "delay"}}, "emit": "final"}
    for step in (FIRST, counted() | largest):
        before, after = (pipeline(TYPED[type], step, **DELAY) for type in ("int64", "string"))
        assert allowed(changes(before, after)) == [f"steps before {step['name']}"]
    of_late = counted() | {"aggregate": {"last": {"field": "late"}}, "emit": "final"}
    before, after = (pipeline(TYPED[type], of_late, **DELAY) for type in ("int64", "string"))
    assert "steps.counts.input.late" in refused(changes(before, after))


def test_fields_of_the_input_come_and_go() -> None:
    before, after = (pipeline(HELD, value={"json": fields}) for fields in ({"a": "int64"}, {"b": "string"}))
    assert allowed(changes(before, after)) == ["value"]
    other = pipeline(HELD, value={"json": {"a": "string"}})
    assert "steps.held.input.a" in refused(changes(before, other))
    assert refused(changes(before, pipeline(HELD))) == {"steps.held": "it holds values of the form object"}


def test_fields_within_a_field_come_and_go() -> None:
    before, after, other = (
        pipeline(HELD, value={"json": {"at": fields}})
        for fields in ({"x": "int64"}, {"x": "int64", "y": "int64"}, {"x": "string"})
    )
    assert allowed(changes(before, after)) == ["value"]
    assert list(refused(changes(before, other))) == ["steps.held.input.at"]


def test_closed_windows_of_a_later_step_are_not_kept_for_longer() -> None:
    limited = HELD | {"until": {"time_limit": "1s"}}
    for steps, options in (([], []), ([limited], ["steps.counts.retention"])):
        before, after = (pipeline(*steps, counted(emit="final", retention=kept)) for kept in ("2h", "3h"))
        assert list(refused(changes(before, after))) == options
        assert allowed(changes(after, before)) == ["steps.counts.retention"]


AGAIN = {"name": "again", "from": "input", "kind": "deduplicate", "within": "10m", "grace": "1h"}
BRANCHED = (HELD, {"to": "held"}, AGAIN)


def test_steps_of_branches_change_by_the_rules_of_their_kinds() -> None:
    before, shorter = pipeline(*BRANCHED), {"until": {"time_limit": "5s"}}
    assert allowed(changes(before, pipeline(HELD | shorter, {"to": "held"}, AGAIN))) == ["steps.held.until"]
    longer = refused(changes(before, pipeline(HELD, {"to": "held"}, AGAIN | {"within": "2h"})))
    assert list(longer) == ["steps.again.within"]


def test_stateless_steps_of_branches_are_free_and_so_is_where_results_go() -> None:
    before = pipeline(*BRANCHED, {"filter": "delay > 1"}, {"to": "few"}, **DELAY)
    after = pipeline(
        {"filter": "delay > 0"}, HELD, AGAIN | {"keep": True}, {"from": "held", "filter": "delay > 9"}, **DELAY
    )
    found = changes(before, after)
    assert allowed(found) == ["output", "steps before held", "steps behind the last", "steps.keep", "steps.to"]
    assert [change.after for change in found[3:]] == [["again"], None]


def test_a_step_comes_at_the_end_of_a_branch() -> None:
    before = pipeline(*BRANCHED)
    for steps, name in (
        ((*BRANCHED, FIRST), "first"),
        ((*BRANCHED, FIRST | {"from": "held"}), "first"),
        ((*BRANCHED, FIRST | {"from": "input"}, {"to": "first"}), "first"),
        ((HELD, FIRST, {"to": "held"}, AGAIN), "first"),
        ((*BRANCHED, {"from": ["held", "again"], **FIRST}), "first"),
    ):
        found = changes(before, pipeline(*steps), held=one)
        assert f"steps.{name}" in allowed(found)
        assert "it starts empty" in "".join(change.note or "" for change in found)


def test_a_step_does_not_come_before_one_that_is_there() -> None:
    before, new = pipeline(HELD, AGAIN, FIRST | {"from": "held"}), AGAIN | {"name": "new", "from": "held"}
    between = refused(changes(before, pipeline(HELD, AGAIN, new, FIRST | {"from": "new"})))
    assert list(between) == ["steps.new"]
    assert "to the end of a branch" in between["steps.new"]


def test_a_new_branch_is_not_written_before_the_first_step() -> None:
    found = refused(changes(pipeline(HELD, AGAIN), pipeline(FIRST, HELD | {"from": "input"}, AGAIN)))
    assert found == {
        "steps.first": "the first step has the stream time of the partition, and a new one has none: write it behind"
    }


def test_a_step_goes_from_a_branch_and_those_behind_it_read_what_it_read() -> None:
    before = pipeline(HELD, AGAIN, COUNTS, {"to": "counts"}, FIRST | {"from": "again"})
    after = pipeline(HELD, COUNTS | {"from": "input"}, {"to": "counts"}, FIRST | {"from": "input"})
    found = changes_since(holding(before, held=4, again=0, counts=0, first=0), after)
    assert allowed(found) == ["steps.again", "steps.counts.from", "steps.first.from"]
    assert [(change.before, change.after) for change in found[1:]] == [("again", "input")] * 2
    assert (
        "again holds 3"
        in refused(changes_since(holding(before, held=0, again=3, counts=0, first=0), after))["steps.again"]
    )


def test_rows_that_get_other_numbers_are_not_held() -> None:
    before = pipeline(HELD, AGAIN, COUNTS, {"to": "counts"}, FIRST | {"from": "counts"})
    after = pipeline(HELD, COUNTS | {"from": "input"}, {"to": "counts"}, FIRST | {"from": "counts"})
    found = refused(changes_since(holding(before, held=0, again=0, counts=2, first=9), after))
    assert list(found) == ["steps.counts.from"]
    assert "others are numbered by arrival; counts holds 2: let `tidegate flush`" in found["steps.counts.from"]


def test_a_step_that_stays_reads_what_it_read() -> None:
    before = pipeline(*BRANCHED)
    for steps, option in (
        ((HELD, {"to": "held"}, AGAIN | {"from": "held"}), "steps.again.from"),
        ((HELD, AGAIN, FIRST | {"from": ["held", "again"]}, {"to": "held"}), None),
        ((AGAIN | {"from": "input"}, {"to": "held"}, HELD | {"from": "input"}), "steps"),
    ):
        assert list(refused(changes(before, pipeline(*steps)))) == ([option] if option else [])


def test_what_a_step_reads_by_another_name_is_told() -> None:
    before, after = (
        pipeline(HELD, {"name": "a", "filter": "true"}, {"name": "b", "from": "held", "filter": "true"}, AGAIN | read)
        for read in ({"from": "a"}, {"from": "b"})
    )
    assert [(c.option, c.before, c.after) for c in changes(before, after)] == [("steps.again.from", "a", "b")]


def test_a_merge_keeps_its_order() -> None:
    before, after = (pipeline(HELD, AGAIN, FIRST | {"from": read}) for read in (["held", "again"], ["again", "held"]))
    [change] = changes(before, after)
    assert (change.before, change.after) == ("held, again", "again, held")
    assert change.refused
