"""What all configurations refuse: booleans for numbers, and numbers without a unit for durations."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from pydantic import ValidationError

import tidegate as tg
from tidegate.contracts.config.base import Config
from tidegate.contracts.errors import ConfigurationError
from tidegate.contracts.validation import _OTHER, _WORDS, problems_of
from tidegate.operators.registry import config_type, kinds
from tidegate.runtime.configuration import application
from tidegate.runtime.stream import config  # noqa: F401  # as above

pytestmark = pytest.mark.fast


def below(kind: type[Config]) -> Iterator[type[Config]]:
    """The type and all types that extend it."""
    yield kind
    for each in kind.__subclasses__():
        yield from below(each)


def numbers() -> Iterator[tuple[type[Config], str]]:
    """Every option of every configuration that takes a number or a duration, and no boolean."""
    for kind in kinds():
        config_type(kind)  # imports it
    for each in dict.fromkeys(below(Config)):
        for name in each.model_fields if each.__module__.startswith("tidegate.") else ():
            annotation = str(each.__annotations__.get(name, ""))
            if any(word in annotation for word in ("Duration", "Count", "Size", "Keep", "int", "float", "Length")):
                yield each, name


NUMBERS = list(numbers())


@pytest.mark.parametrize(("kind", "option"), NUMBERS, ids=lambda each: getattr(each, "__name__", each))
def test_a_boolean_is_no_number(kind: type[Config], option: str) -> None:
    for value in (True, False):
        assert "a boolean, not a number" in refusal(kind, option, value)


@pytest.mark.parametrize(("kind", "option"), NUMBERS, ids=lambda each: getattr(each, "__name__", each))
def test_a_number_without_a_unit_is_no_duration(kind: type[Config], option: str) -> None:
    if any(word in str(kind.__annotations__[option]) for word in ("Duration", "Keep", "Length")):
        for value in (5, 5.0, 0.5):
            assert "a duration needs a unit" in refusal(kind, option, value)


def refusal(kind: type[Config], option: str, value: Any) -> str:
    """What is wrong with the option's value."""
    with pytest.raises(ValidationError) as caught:
        kind.model_validate({option: value})
    return next((each["msg"] for each in caught.value.errors() if each["loc"] == (option,)), "nothing")


def test_numbers_of_all_kinds_of_options_are_tried() -> None:
    assert len(NUMBERS) > 30
    assert {"trigger", "port", "threshold", "every", "max_keys", "max_bytes"} <= {name for _, name in NUMBERS}


MADE = [kind for name in tg.__all__ if isinstance(kind := getattr(tg, name), type) and issubclass(kind, Config)]


@pytest.mark.parametrize("kind", MADE)
def test_a_configuration_that_a_program_makes_raises_an_error_of_the_project(kind: type[Config]) -> None:
    with pytest.raises(ConfigurationError, match="unknown key"):
        kind(no_such_option=5)


def test_problems_of_all_parts_of_a_configuration_that_a_program_makes_are_reported_at_once() -> None:
    with pytest.raises(ConfigurationError) as caught:
        tg.WindowedAggregationRules(
            window={"tumbling": 0, "grace": "soon"}, aggregate={"sum": {"field": ""}}, emit="no"
        )  # type: ignore[arg-type]
    assert [problem.where.partition(".")[2] for problem in caught.value.problems] == [
        "window.tumbling",
        "window.grace",
        "aggregate.sum.field",
        "emit",
    ]


OF_ALL_TYPES: list[Any] = [None, True, -1, 0, 0.5, float("nan"), 2**70, "", "text", b"bytes", [], [5], {}, {"text": 5}]


def options() -> Iterator[tuple[type[Config], str]]:
    for each in dict.fromkeys(below(Config)):
        yield from ((each, name) for name in each.model_fields if each.__module__.startswith("tidegate."))


@pytest.mark.parametrize(("kind", "option"), list(options()), ids=lambda each: getattr(each, "__name__", each))
def test_every_option_refuses_values_in_words_of_the_project(kind: type[Config], option: str) -> None:
    if (kind, option) == (application.Application, "operators"):
        return  # its problems are those of the operators
    for value in OF_ALL_TYPES:
        try:
            kind.model_validate({option: value})
        except ValidationError as error:
            assert {found["type"] for found in error.errors()} <= {*_WORDS, "value_error"}, error
            for problem in problems_of(error, "", ()):
                assert problem.cause and problem.remedy and problem.remedy != _OTHER[1], problem
