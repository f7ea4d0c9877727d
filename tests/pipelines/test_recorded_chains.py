"""Chains recorded from Kafka Streams 4.1.1 by `tests.oracle.record`: counts, suppressions, and filters around them."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.oracle.record import CHAINS
from tidegate.testing.conformance import difference, scenarios

pytestmark = pytest.mark.fast

RECORDED = list(scenarios(CHAINS))


def steps_of(scenario: Any) -> list[dict[str, Any]]:
    return list(scenario["config"]["steps"])


def is_filtered(scenario: Any) -> bool:
    """Whether a filter stands before a step that holds state."""
    return any("filter" in step for step in steps_of(scenario)[:-1])


def under_pipeline_time(scenario: Any) -> Any:
    return scenario | {"config": scenario["config"] | {"time": "pipeline"}}


FILTERED = [scenario for scenario in RECORDED if is_filtered(scenario)]
UNFILTERED = [scenario for scenario in RECORDED if not is_filtered(scenario)]


def test_recorded_chains_pass_under_the_time_of_records() -> None:
    assert len(RECORDED) > 200
    assert sum(len(scenario["expected"]["output"]) for scenario in RECORDED) > 2_000
    assert [text for scenario in RECORDED if (text := difference(scenario))] == []


def test_without_a_filter_between_the_steps_both_times_give_the_same_results() -> None:
    assert len(UNFILTERED) > 80
    assert [text for scenario in UNFILTERED if (text := difference(under_pipeline_time(scenario)))] == []


def test_behind_a_filter_the_two_times_differ() -> None:
    some = FILTERED[::4]
    differ = [text for scenario in some if (text := difference(under_pipeline_time(scenario)))]
    assert len(differ) > len(some) / 3


@pytest.mark.parametrize("option", ["grace_ms", "time_limit_ms", "gap_ms"])
def test_a_mistake_in_a_duration_is_found(option: str) -> None:
    wrong = [found for scenario in RECORDED[::3] if (found := with_longer(option, scenario))]
    assert sum(difference(scenario) is not None for scenario in wrong) > len(wrong) / 3


def with_longer(option: str, scenario: Any) -> Any:
    """The scenario with 2 ms more in the steps that have the option; None if no step has it."""
    wrong = json.loads(json.dumps(scenario))
    having = [rules for step in steps_of(wrong) for rules in step.values() if option in rules]
    for rules in having:
        rules[option] += 2
    return wrong if having else None
