"""What all configurations refuse: booleans for numbers, and numbers without a unit for durations."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from pydantic import ValidationError

from tidegate.contracts.config import Config
from tidegate.operators.registry import config_type, kinds
from tidegate.runtime.configuration import application  # noqa: F401  # its types are found below Config
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
