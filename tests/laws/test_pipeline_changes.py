"""The steps of a pipeline change while it holds something: as the chained reference, and as a state that is rebuilt."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from tests.hypothesis_profile import many
from tidegate.contracts.records import Row
from tidegate.operators.pipeline.cases import CASES, pipeline_reference
from tidegate.operators.pipeline.config import PipelineConfig
from tidegate.operators.pipeline.edits import without
from tidegate.operators.pipeline.strategies import FILTER, REASON, REQUIRE, reads_counts
from tidegate.operators.registry import operator_for
from tidegate.operators.table_history.config import TableHistoryConfig
from tidegate.operators.testing import strategies
from tidegate.operators.testing.laws import Change, Clock, Event, Flush, Partition, Table, Trace, batches
from tidegate.runtime.configuration.application import settings_of
from tidegate.runtime.configuration.changes import changes

pytestmark = pytest.mark.fast

CLOCK_MS = 12
_OTHER = {
    "deduplicate": st.fixed_dictionaries(
        {"within": st.sampled_from(["1ms", "3ms"]), "grace": st.sampled_from(["0ms"])}
    ),
    "suppression": st.fixed_dictionaries(
        {"until": st.fixed_dictionaries({"time_limit": st.sampled_from(["0ms", "2ms"])})}
    ),
    "windowed_aggregation": st.just({}),
    "stream_table_join": st.fixed_dictionaries(
        {"join": st.sampled_from(["left", "inner"]), "grace": st.sampled_from(["1ms", "4ms", "9ms"])}
    ),
}
_FUNCTIONS = "tidegate.operators.testing.batch_functions"
_STATELESS = st.sampled_from(
    [
        {"filter": FILTER},
        {"require": REQUIRE, "reason": REASON},
        {"map": f"{_FUNCTIONS}:measured", "emits": {"n": "int64"}},
        {"flat_map": f"{_FUNCTIONS}:repeated", "emits": {"n": "int64"}},
    ]
)
_LAST = st.sampled_from(
    [
        {"kind": "suppression", "until": {"time_limit": "3ms"}},
        {"kind": "deduplicate", "within": "4ms", "grace": "3ms"},
        {"kind": "windowed_aggregation", "window": {"tumbling": "5ms", "grace": "2ms"}, "aggregate": {"count": True}},
    ]
)


@st.composite
def changed_steps(
    draw: st.DrawFn, steps: list[dict[str, Any]], holding: set[str], gone: list[str]
) -> list[dict[str, Any]]:
    """The steps with other stateless steps between them, other options, without some that hold nothing, or with more.

    A new step is at the end; it may have the name of one that is gone. One that joins stays.
    """
    found: list[dict[str, Any]] = []
    for step in steps:
        if "kind" not in step:
            has_counts = bool(found) and "window" in found[-1]
            found += [step] if draw(st.booleans()) and (has_counts or not reads_counts(step)) else []
            continue
        found += draw(st.lists(_STATELESS, max_size=1))
        keep = step.get("until") == "window_close" or draw(st.booleans())
        if step["name"] in holding or "table" in step or draw(st.integers(0, 2)):
            found.append(step if keep else step | draw(_OTHER[step["kind"]]))
    return [*found, draw(new_step(gone, len(steps)))] if gone or draw(st.booleans()) else found


@st.composite
def new_step(draw: st.DrawFn, gone: list[str], number: int) -> dict[str, Any]:
    """A step that holds state; it may have the name of one that is gone."""
    last = draw(_LAST)
    emit = {"emit": draw(st.sampled_from(["updates", "final"]))} if last["kind"] == "windowed_aggregation" else {}
    return {"name": draw(st.sampled_from([*gone, f"new{number}"])), **last, **emit}


@st.composite
def changed_branches(draw: st.DrawFn, steps: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The steps with other options, other ones in the place of stateless steps, and results that go elsewhere."""
    found: list[dict[str, Any]] = []
    for at, step in enumerate(steps):
        wires = {name: step[name] for name in ("name", "from") if name in step}
        if "to" in step and draw(st.booleans()):
            continue
        if "kind" in step and step.get("until") != "window_close" and draw(st.booleans()):
            step = step | draw(_OTHER[step["kind"]])
        if {"filter", "require"} & step.keys() and draw(st.booleans()):
            step = wires | draw(_STATELESS.filter(lambda other: "emits" not in other))
        if "kind" in step and at + 1 < len(steps) and draw(st.integers(0, 3)) == 0:
            found += [step | {"keep": True}, *([{"to": f"{step['name']}_{len(steps)}"}] if draw(st.booleans()) else [])]
        else:
            found.append(step)
    return found


@st.composite
def rewired(draw: st.DrawFn, steps: list[dict[str, Any]], holding: set[str], gone: list[str]) -> list[dict[str, Any]]:
    """The steps without some that hold state but nothing now, or with one more, which is the end of a branch.

    What has read a step that goes reads what that has read.
    """
    found = list(steps)
    stay = holding | joining(steps) | counting(steps)
    for name in [step["name"] for step in steps if "kind" in step and step["name"] not in stay]:
        found = without(found, name) if draw(st.booleans()) else found
    if draw(st.booleans()):
        begin = st.sampled_from(["input", *(step["name"] for step in found if "name" in step)])
        found.append({"from": draw(begin), **draw(new_step(gone, len(steps)))})
    return found


def joining(steps: list[dict[str, Any]]) -> set[str]:
    """The names of the steps that read a table: they neither come nor go."""
    return {step["name"] for step in steps if "table" in step}


def counting(steps: list[dict[str, Any]]) -> set[str]:
    """The names of the steps that count, if any step reads counts."""
    return {step["name"] for step in steps if "window" in step} if any(map(reads_counts, steps)) else set()


@st.composite
def examples(draw: st.DrawFn) -> tuple[PipelineConfig, list[Event], set[int]]:
    """A pipeline, a history in which it changes once or twice, and where that is cut into batches."""
    case = draw(st.sampled_from([CASES["pipeline"], CASES["pipeline_with_a_join"]]))
    config = draw(case.configs.filter(is_never_stopped))
    history = strategies.readable(draw(case.histories), config)
    begin, at, now, names = list[Event](), 0, config, set(config.operators)
    for then in sorted(draw(st.lists(st.integers(0, len(history)), min_size=1, max_size=2))):
        begin += [*history[at:then], *([Flush()] if draw(st.booleans()) else [])]
        now = draw(changed(config, begin, now, sorted(names - now.operators.keys())))
        names |= now.operators.keys()
        begin.append(Change(now, runs=bool(held_by_steps(config, begin)) or draw(st.booleans())))
        at = then
    history = draw(strategies.with_pins([*begin, *history[at:]], CLOCK_MS))
    return config, with_first_batches(history), draw(strategies.cuts)


def with_first_batches(history: list[Event]) -> list[Event]:
    """The history where the first record after a change that runs no batch is a batch of its own.

    Elsewhere a cut may be between that record and the marks of steps that got no row of it.
    """
    found, has_yet_to_run = list[Event](), False
    for event in history:
        found.append(event)
        has_yet_to_run = not event.runs if isinstance(event, Change) else has_yet_to_run
        if has_yet_to_run and isinstance(event, Row):
            found.append(Clock(CLOCK_MS))
            has_yet_to_run = False
    return found


def held_by_steps(config: PipelineConfig, history: list[Event]) -> Counter[str]:
    """How many rows each step holds after the history."""
    return Counter(row["step"] for row in pipeline_reference(config, history, CLOCK_MS).held if row["step"])


def is_never_stopped(config: PipelineConfig) -> bool:
    """Whether no step has a bound that stops the pipeline."""
    return not any("shut_down" in str(step.get("buffer")) for step in settings_of(config)["steps"])


@st.composite
def changed(
    draw: st.DrawFn, config: PipelineConfig, begin: list[Event], now: PipelineConfig, gone: list[str]
) -> PipelineConfig:
    """What the pipeline may become after this history, in which it was `config` at first and is `now` at last."""
    settings = settings_of(now)
    held = held_by_steps(config, begin)
    try:
        is_chain = not any({"from", "to", "keep"} & step.keys() for step in settings["steps"])
        steps = draw(
            changed_steps(settings["steps"], set(held), gone) if is_chain else changed_branches(settings["steps"])
        )
        steps = draw(rewired(steps, set(held), gone)) if draw(st.booleans()) else steps
        after = PipelineConfig.model_validate(settings | {"steps": steps})
    except ValidationError:
        return now
    refused = any(change.refused for change in changes(now, after, held=lambda step: held[step]))
    return now if refused else after


class Changing(Partition):
    """A partition whose state is rebuilt from its log at a change: always, or if the layout differs."""

    rebuilds = False

    def play_all(self, history: Sequence[Event], cuts: set[int]) -> Trace:
        """Play the history, and return the finished trace."""
        log: list[pa.Table] = [self.state.snapshot()]
        for step in batches(history, cuts):
            if isinstance(step, Change):
                rows = pa.concat_tables(log, promote_options="default")
                self.reconfigure(step.config, rows)
                if self.rebuilds:
                    self.rebuild(rows)
                if not step.runs:
                    continue
            log.append(self.play(step).changes)
        return self.finished()


@many
@given(example=examples())
def test_the_steps_of_a_pipeline_change_as_in_the_chained_reference(example: Any) -> None:
    config, history, cuts = example
    played = Changing(operator_for(config), CLOCK_MS).play_all(history, cuts)
    assert played == pipeline_reference(config, history, CLOCK_MS)


@many
@given(example=examples(), others=strategies.cuts)
def test_a_rebuilt_state_and_other_cuts_change_nothing(example: Any, others: set[int]) -> None:
    config, history, cuts = example
    rebuilt = Changing(operator_for(config), CLOCK_MS)
    rebuilt.rebuilds = True
    played = Changing(operator_for(config), CLOCK_MS).play_all(history, cuts)
    assert rebuilt.play_all(history, others) == played


def test_each_step_acts_under_its_own_new_rules_before_it_takes_what_the_others_release() -> None:
    #   in       a8   b9   b5   | now both limits are 0
    #   early    a leaves at once, because of the bound; b (5) leaves with the change
    #   slow     holds a, and its time is 8: a leaves, and then the mark 8, before b arrives
    #   first    so b is late
    def limited(limit: str) -> PipelineConfig:
        early = {"until": {"time_limit": limit}, "buffer": {"max_keys": 1, "when_full": "emit"}}
        steps = [
            {"name": "early", "kind": "suppression", **early},
            {"name": "slow", "kind": "suppression", "until": {"time_limit": limit}},
            {"name": "first", "kind": "deduplicate", "within": "1ms", "grace": "0ms"},
        ]
        return PipelineConfig.model_validate({"input": "in", "steps": steps, "windows": "ignore"})

    rows = [Row(key, b"v", time, at) for at, (key, time) in enumerate([(b"a", 8), (b"b", 9), (b"b", 5)])]
    history = [*rows, Change(limited("0ms"))]
    played = Changing(operator_for(limited("20ms")), CLOCK_MS).play_all(history, set())
    assert [(row["step"], row["timestamp"]) for row in played.late] == [("first", 5)]
    assert played == pipeline_reference(limited("20ms"), history, CLOCK_MS)


PASSING = {"name": "passing", "kind": "suppression", "until": {"time_limit": "0ms"}}
PUNCTUAL = PASSING | {"name": "punctual", "max_lateness": "0ms"}


def late_under(*configs: list[dict[str, Any]], rows: list[Row]) -> list[tuple[str, int]]:
    """Step and timestamp of what is late if one row arrives under each of these configurations."""
    first, *others = [PipelineConfig.model_validate({"input": "in", "steps": list(steps)}) for steps in configs]
    history: list[Event] = []
    for row, config in zip(rows, [None, *others], strict=True):
        history += [row] if config is None else [Change(config), row]
    played = Changing(operator_for(first), CLOCK_MS).play_all(history, set())
    assert played == pipeline_reference(first, history, CLOCK_MS)
    return [(row["step"], row["timestamp"]) for row in played.late]


def test_a_step_that_becomes_the_first_keeps_the_time_of_the_partition() -> None:
    #   in        a10  | b5
    #   passing   a10  |             is removed
    #   punctual       | b5          new, and the first one: the partition's time is 10, so b5 is late
    assert late_under([PASSING], [PUNCTUAL], rows=[Row(b"a", b"v", 10, 0), Row(b"b", b"v", 5, 1)]) == [("punctual", 5)]


def test_a_step_that_comes_back_goes_on_at_the_time_that_it_had() -> None:
    #   in        a10  | b6 | c5
    #   passing   a10    b6   c5
    #   punctual  10   |    | c5     it had seen 10, so c5 is late
    both, rows = (
        [PASSING, PUNCTUAL],
        [Row(key, b"v", at, n) for n, (key, at) in enumerate([(b"a", 10), (b"b", 6), (b"c", 5)])],
    )
    assert late_under(both, [PASSING], both, rows=rows) == [("punctual", 5)]


def test_a_step_before_what_passed_records_on_has_the_time_of_the_partition() -> None:
    #   in        a10  | b5
    #   copied    a10    b5          no step with state is there, so the partition's time is that of passed records
    #   punctual       | b5          new, and the first one: it begins at that time, so b5 is late
    copied = {"to": "copied"}
    rows = [Row(b"a", b"v", 10, 0), Row(b"b", b"v", 5, 1)]
    assert late_under([copied], [copied, PUNCTUAL], rows=rows) == [("punctual", 5)]


def test_a_new_step_gets_the_marks_of_a_step_whose_hold_has_become_longer() -> None:
    #   in       a12 | b19   a7     joined has no grace, then one of 9: a7 is late, and leaves at once
    #   new            |     a7     its time is 10, which is no mark above the 12 of before it came; so a7 is due
    def joining_with(*more: dict[str, Any], **options: Any) -> PipelineConfig:
        join = {"name": "joined", "kind": "stream_table_join", "table": "facts", "join": "left", **options}
        steps = [join | {"before_history": "join"}, *more]
        return PipelineConfig.model_validate({"input": "in", "steps": steps, "windows": "ignore"})

    facts = Table(TableHistoryConfig.model_validate({"input": "facts", "history_retention": "1h"}), ())
    rows = [Row(key, b"1", time, at) for at, (key, time) in enumerate([(b"a", 12), (b"b", 19), (b"a", 7)])]
    first, new = joining_with(), {"name": "new", "kind": "suppression", "until": {"time_limit": "3ms"}}
    history = [facts, rows[0], Change(joining_with(new, grace="9ms")), *rows[1:]]
    played = Changing(operator_for(first), CLOCK_MS).play_all(history, {3})
    assert [(row["step"], row["timestamp"], row["source"]) for row in played.emissions][-1] == ("new", 7, 2)
    assert played == pipeline_reference(first, history, CLOCK_MS)
