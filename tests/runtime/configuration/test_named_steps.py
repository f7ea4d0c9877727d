"""Commands name an operator, or a step of a pipeline: `OPERATOR.STEP`."""

from __future__ import annotations

import pytest

import tidegate as tg
from tests.application.programs import application
from tidegate.contracts.errors import UserError
from tidegate.runtime.configuration.application import Application
from tidegate.runtime.configuration.named_steps import step_named, step_with_windows

pytestmark = pytest.mark.fast


@pytest.fixture
def shop() -> Application:
    """A suppression, windows, and a pipeline of two windows and a suppression."""
    app = application()
    app.stream("a", name="limited").suppress(tg.time_limit("1s")).to("limited")
    app.stream("b", name="counted").window(tg.tumbling("1h", grace=0)).count().to("counted")
    hours = app.stream("c", name="chain").window(tg.tumbling("1h", grace=0)).count(name="hours")
    hours.suppress(tg.time_limit("1s"), name="calm").to("chain")
    return app.configuration()


@pytest.mark.parametrize(
    ("name", "found"), [("counted", "counted"), ("chain", "chain.hours"), ("chain.hours", "chain.hours")]
)
def test_the_only_step_that_suits_need_not_be_named(shop: Application, name: str, found: str) -> None:
    assert str(step_with_windows(shop, name)) == found


@pytest.mark.parametrize(
    ("name", "problem"),
    [
        ("limited", "it holds no windows"),
        ("chain.calm", "it holds no windows"),
        ("chain.days", "no such step"),
        ("counted.hours", "no such step"),
        ("chian", "no such operator in the file"),
        ("", "no such operator in the file"),
    ],
)
def test_what_does_not_suit_is_refused_with_the_names_that_do(shop: Application, name: str, problem: str) -> None:
    with pytest.raises(UserError) as caught:
        step_with_windows(shop, name)
    assert (caught.value.problem, caught.value.value) == (problem, name)
    assert caught.value.remedy == "name one of these: counted, chain.hours"


def test_of_several_steps_that_suit_one_has_to_be_named(shop: Application) -> None:
    with pytest.raises(UserError, match="a pipeline has several such steps") as caught:
        step_named(shop, "chain", lambda rules: True, "none")
    assert caught.value.remedy == "name one of these: chain.hours, chain.calm"
