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
from tidegate.contracts.config import OperatorRules
from tidegate.contracts.records import Row
from tidegate.operators.pipeline.cases import CASES, pipeline_reference
from tidegate.operators.pipeline.config import PipelineConfig
from tidegate.operators.pipeline.rules.changes import is_chain
from tidegate.operators.pipeline.strategies import FILTER, REASON, REQUIRE
from tidegate.operators.registry import operator_for
from tidegate.operators.testing import strategies
from tidegate.operators.testing.laws import Change, Event, Flush, Partition, Trace, batches, small
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
def changed_steps(draw: st.DrawFn, steps: list[dict[str, Any]], holding: set[str]) -> list[dict[str, Any]]:
    """The steps with other stateless steps between them, other options, without some that hold nothing, or with more.

    The first step with state stays: its time is that of the partition. A new step is at the end.
    """
    found: list[dict[str, Any]] = []
    for step in steps:
        if "kind" not in step:
            found += [step] if draw(st.booleans()) else []
            continue
        found += draw(st.lists(_STATELESS, max_size=1))
        keep = step.get("until") == "window_close" or draw(st.booleans())
        is_first = not any("kind" in each for each in found)
        if is_first or step["name"] in holding or draw(st.integers(0, 2)):
            found.append(step if keep else step | draw(_OTHER[step["kind"]]))
    if draw(st.booleans()):
        last = draw(_LAST)
        emit = {"emit": draw(st.sampled_from(["updates", "final"]))} if last["kind"] == "windowed_aggregation" else {}
        found.append({"name": "new", **last, **emit})
    return found


@st.composite
def examples(draw: st.DrawFn) -> tuple[PipelineConfig, list[Event], set[int]]:
    """A chain, a history in which it changes, and where that is cut into batches."""
    config = draw(CASES["pipeline"].configs.filter(lambda config: is_chain(config.steps)))
    history = strategies.readable(draw(CASES["pipeline"].histories), config)
    at = draw(st.integers(0, len(history)))
    begin = [*history[:at], *([Flush()] if draw(st.booleans()) else [])]
    settings = settings_of(config)
    held = Counter(row["step"] for row in pipeline_reference(config, begin, CLOCK_MS).held if row["step"])
    try:
        steps = draw(changed_steps(settings["steps"], set(held)))
        after = PipelineConfig.model_validate(settings | {"steps": steps})
    except ValidationError:
        after = config
    if any(change.refused for change in changes(config, after, held=lambda step: held[step])):
        after = config
    return config, [*begin, Change(after), *history[at:]], draw(strategies.cuts)


class Changing(Partition):
    """A partition whose state is rebuilt from its log at a change: always, or if the layout differs."""

    rebuilds = False

    def play_all(self, history: Sequence[Event], cuts: set[int]) -> Trace:
        """Play the history, and return the finished trace."""
        log: list[pa.Table] = [self.state.snapshot()]
        for step in batches(history, cuts):
            if isinstance(step, Change):
                self._reconfigure(step.config, pa.concat_tables(log))
                log = [self.state.snapshot()]
            log.append(self.play(step).changes)
        return self.finished()

    def _reconfigure(self, config: OperatorRules, rows: pa.Table) -> None:
        version, self.operator = self.operator.layout.version, operator_for(config)
        if self.rebuilds or self.operator.layout.version != version:
            self._layout = small(self.operator.layout)
            self.rebuild(rows)


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
