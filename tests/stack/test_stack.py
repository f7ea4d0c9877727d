"""The stack on a real Docker engine: `make test-stack`."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest

from services.stack_demo.month import DAYS
from tests.stack import engine
from tests.stack.test_compose import ONCE, SERVICES, queries

pytestmark = [pytest.mark.stack, pytest.mark.timeout(3600)]

KILLED = [name for name in SERVICES if name not in ONCE and "profiles" not in SERVICES[name]]
"""Every container that stays, of those that a machine without a registry can have."""


def output(said: str) -> str:
    """The hash of all output, as the demo tells it."""
    return re.findall(r"Output: (\w+)", said)[0]


@pytest.fixture(scope="module")
def undisturbed() -> Iterator[str]:
    """The output of a run in which nothing happens; its stack is still up."""
    with engine.fresh_stack():
        yield output(engine.demo(DAYS))


@pytest.fixture(scope="module")
def disturbed(undisturbed: str) -> Iterator[None]:
    """An empty stack, after the undisturbed one."""
    with engine.fresh_stack():
        yield


@pytest.mark.parametrize("query", queries())
def test_every_panel_has_data(undisturbed: str, query: str) -> None:
    assert engine.ask_prometheus(query, 1_800)


@pytest.mark.parametrize("number", range(len(KILLED)), ids=KILLED)
def test_a_killed_container_restarts_and_the_results_are_right(disturbed: None, number: int) -> None:
    """One after the other, on more and more days; Kafka when the input is in it, the others while it is produced."""
    service, days = KILLED[number], DAYS * (number + 1) // len(KILLED)
    before = engine.container(service)["RestartCount"]
    moment = "waiting" if service == "kafka" else "produced"
    engine.demo(days, at=moment, do=lambda: engine.kill(service))
    engine.wait_until_back(service, before)


def test_the_output_is_that_of_an_undisturbed_run(disturbed: None, undisturbed: str) -> None:
    assert output(engine.demo(DAYS)) == undisturbed
