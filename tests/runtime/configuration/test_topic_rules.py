"""Which topics, and names of views, the operators of a file may share."""

from __future__ import annotations

from typing import Any

import pytest

from tidegate.contracts.errors import ConfigurationError, Problem
from tidegate.runtime.configuration.application import application_of

pytestmark = pytest.mark.fast

SUPPRESSION = {"kind": "suppression", "until": {"time_limit": "1s"}}
WINDOWS = {
    "kind": "windowed_aggregation",
    "window": {"tumbling": "1h", "grace": "1h"},
    "aggregate": {"count": True},
    "emit": "updates",
}


def problems(**operators: dict[str, Any]) -> dict[str, Problem]:
    """What is wrong with a file of these operators, suppressions unless they are of another kind."""
    try:
        application_of(
            {
                "application": "app",
                "lake": "lake",
                "keep_output": "30d",
                "kafka": {"bootstrap.servers": "nowhere:1"},
                "operators": {
                    name: operator if "kind" in operator else SUPPRESSION | operator
                    for name, operator in operators.items()
                },
            }
        )
    except ConfigurationError as error:
        return {problem.where: problem for problem in error.problems}
    return {}


def test_an_output_that_is_the_input_is_refused() -> None:
    [problem] = problems(a={"input": "t", "output": "t"}).values()
    assert (problem.where, problem.value) == ("operators.a.output", "t")
    assert problem.cause
    assert problem.remedy.startswith("name")


@pytest.mark.parametrize("topic", ["in", "out"])
def test_dead_letters_that_are_the_input_or_the_output_are_refused(topic: str) -> None:
    found = problems(a={"input": "in", "output": "out", "dead_letters": topic})
    assert list(found) == ["operators.a.dead_letters"]


@pytest.mark.parametrize("option", ["output", "dead_letters"])
def test_operators_that_read_what_they_write_through_others_are_refused_once(option: str) -> None:
    """x -> a -> y -> b -> z -> c -> x"""
    found = problems(
        before={"input": "w", "output": "x"},
        a={"input": "x", "output": "y"},
        b={"input": "y", option: "z"},
        c={"input": "z", "output": "x"},
    )
    assert {where: problem.value for where, problem in found.items()} == {"operators.a.input": "a -> b -> c -> a"}


def test_a_chain_of_operators_and_a_topic_with_two_readers_are_not_a_cycle() -> None:
    assert not problems(
        a={"input": "x", "output": "y"},
        b={"input": "y", "output": "z"},
        c={"input": "y", "output": "v", "dead_letters": "refused"},
        d={"input": "x", "dead_letters": "refused"},
    )


def test_no_operator_has_views_with_the_names_of_those_of_a_step() -> None:
    steps = [{"name": "late", **SUPPRESSION}, {"name": "big", "filter": "timestamp > 0"}]
    found = problems(
        shop={"kind": "pipeline", "input": "x", "steps": steps}, shop_late={"input": "x"}, shop_big={"input": "x"}
    )
    assert found.keys() == {"operators.shop_late", "operators.shop_big"}
    assert found["operators.shop_big"].cause.startswith("the step big of shop has views of the same names")


def test_two_operators_with_the_same_output_format_may_share_a_topic() -> None:
    assert not problems(a={"input": "x", "output": "all"}, b={"input": "y", "output": "all"})


def test_two_operators_with_different_output_formats_cannot_share_a_topic() -> None:
    found = problems(a={"input": "x", "output": "all"}, b={**WINDOWS, "input": "y", "output": "all"})
    assert found["operators.b.output"].value == "all"
    assert list(found) == ["operators.b.output"]


def test_one_operator_s_results_and_another_s_dead_letters_do_not_share_a_topic() -> None:
    found = problems(a={"input": "x", "output": "t"}, b={"input": "y", "dead_letters": "t"})
    assert {where: problem.value for where, problem in found.items()} == {"operators.b.dead_letters": "t"}
    found = problems(b={"input": "y", "dead_letters": "t"}, a={"input": "x", "output": "t"})
    assert list(found) == ["operators.b.dead_letters"]
