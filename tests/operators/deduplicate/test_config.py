"""What a configuration of deduplication accepts, and which changes it accepts while keys are remembered."""

from __future__ import annotations

from typing import Any

import pytest

from tidegate.contracts.config.base import read
from tidegate.contracts.errors import ConfigurationError
from tidegate.operators.deduplicate import DeduplicateConfig
from tidegate.runtime.configuration.application import settings_of

pytestmark = pytest.mark.fast

TIMED = {"within": "10m", "grace": "1h"}


def config(**given: Any) -> DeduplicateConfig:
    """A configuration with these options."""
    return read(DeduplicateConfig, {"input": "records", **given})


@pytest.mark.parametrize(
    ("given", "cause"),
    [
        ({}, "required"),
        ({"within": "10m"}, "required if within is a duration"),
        ({"within": "forever", "grace": "1h"}, "no record is late with within: forever"),
        ({"within": 0, "grace": 0}, "no record would be a duplicate"),
        (TIMED | {"buffer": {"max_keys": 1, "when_full": "emit"}}, "spill"),
    ],
)
def test_unsound_combinations_are_refused_with_their_cause(given: dict[str, Any], cause: str) -> None:
    with pytest.raises(ConfigurationError, match=cause):
        config(**given)


@pytest.mark.parametrize("given", [TIMED, {"within": "forever"}, TIMED | {"windows": "headers"}])
def test_settings_give_the_same_configuration(given: dict[str, Any]) -> None:
    assert read(DeduplicateConfig, settings_of(config(**given))) == config(**given)


@pytest.mark.parametrize(
    ("after", "refused"),
    [
        ({"within": "5m", "grace": "1h"}, []),
        ({"within": "20m", "grace": "50m"}, []),
        ({"within": "11m", "grace": "1h"}, ["within"]),
        ({"within": "10m", "grace": "2h"}, ["grace"]),
        ({"within": "forever"}, ["within"]),
        (TIMED | {"windows": "headers"}, ["windows"]),
    ],
)
def test_the_time_for_which_keys_are_remembered_cannot_grow(after: dict[str, Any], refused: list[str]) -> None:
    assert list(config(**after).incompatibilities(config(**TIMED))) == refused


def test_forever_can_become_a_time() -> None:
    assert config(**TIMED).incompatibilities(config(within="forever")) == {}
