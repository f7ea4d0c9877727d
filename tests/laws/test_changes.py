"""A configuration may change while an operator holds something: with a state that goes on, and with a rebuilt one."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from tests.hypothesis_profile import many
from tidegate.contracts.config.operator_config import OperatorConfig
from tidegate.operators.registry import operator_for
from tidegate.operators.testing import strategies
from tidegate.operators.testing.cases import Case, cases
from tidegate.operators.testing.laws import Change, Event, Partition, Trace, batches
from tidegate.runtime.configuration.application import settings_of
from tidegate.testing.memory_log import MemoryLog

pytestmark = pytest.mark.fast

CLOCK_MS = 12


@pytest.fixture(scope="module", params=[name for name, case in cases().items() if case.changing])
def case(request: pytest.FixtureRequest) -> Case:
    """What the laws need to know of the operator."""
    return cases()[request.param]


def changed(config: OperatorConfig, other: OperatorConfig) -> OperatorConfig:
    """The configuration with those of the other's live options that it can go on under; of a window that is its grace.

    A joiner's answers say nothing of what is held; of a pipeline's steps only where results go can change.
    """
    for option in sorted(config.live - {"joiner", "steps"}):
        after = with_option(config, option, settings_of(other).get(option))
        if after is not None and not after.incompatibilities(config):
            config = after
    return config


def with_option(config: OperatorConfig, option: str, value: Any) -> OperatorConfig | None:
    """The configuration with another value, None: left out. None where there is no such configuration."""
    settings = settings_of(config)
    if option == "window" and "grace" in value and "grace" in settings["window"]:
        value = settings["window"] | {"grace": value["grace"]}
    settings.pop(option, None)
    try:
        return type(config).model_validate(settings if value is None else settings | {option: value})
    except ValidationError:
        return None


def example(data: st.DataObject, case: Case) -> tuple[OperatorConfig, list[Event], set[int]]:
    """A configuration, a history in which it changes, and where that is cut into batches."""
    config = data.draw(case.configs)
    history = strategies.readable(data.draw(case.histories), config)
    at = data.draw(st.integers(1, max(1, len(history))))
    after = changed(config, data.draw(case.configs))
    return config, [*history[:at], Change(after), *history[at:]], data.draw(strategies.cuts)


@many
@given(data=st.data())
def test_held_records_continue_under_a_changed_configuration_as_in_the_reference(
    case: Case, data: st.DataObject
) -> None:
    config, history, cuts = example(data, case)
    assert undisturbed(config, history, cuts) == case.reference(config, history, CLOCK_MS)


@many
@given(data=st.data())
def test_a_state_rebuilt_under_a_changed_configuration_equals_one_that_continued(
    case: Case, data: st.DataObject
) -> None:
    config, history, cuts = example(data, case)
    partition = Partition(operator_for(config), CLOCK_MS)
    log = MemoryLog(partition.operator.slot)
    for number, step in enumerate(batches(history, cuts)):
        if isinstance(step, Change) and number > 0:
            partition.operator = operator_for(step.config)
            partition.rebuild(log.rows())
        result = partition.play(step)
        log.commit(result)
        if result.stopped_at is not None:
            break
    assert partition.finished() == undisturbed(config, history, cuts)


def undisturbed(config: Any, history: list[Event], cuts: set[int]) -> Trace:
    """What the history makes visible when nothing goes wrong."""
    return Partition(operator_for(config), CLOCK_MS).play_all(history, cuts)
