"""Suppression's configuration: what is accepted, and what is refused with its cause and remedy."""

from __future__ import annotations

from typing import Any

import pytest

from tidegate.contracts.config.base import read
from tidegate.contracts.errors import ConfigurationError
from tidegate.operators.suppression import SuppressionConfig

pytestmark = pytest.mark.fast

LIMIT = {"time_limit": "30s"}


def problems(**given: Any) -> dict[str, str]:
    """Where and why a configuration is refused."""
    with pytest.raises(ConfigurationError) as refused:
        read(SuppressionConfig, {"kind": "suppression", "input": "records"} | given)
    assert all(problem.remedy for problem in refused.value.problems)
    return {problem.where: problem.cause for problem in refused.value.problems}


@pytest.mark.parametrize(
    "given",
    [
        {"until": LIMIT},
        {"until": {"time_limit": 0}},
        {"until": LIMIT, "buffer": {"max_keys": 1000, "when_full": "emit"}},
        {"until": LIMIT, "buffer": {"max_bytes": "64MiB", "when_full": "spill"}, "timer": "last_update"},
        {"buffer": {"max_keys": 0, "when_full": "emit"}},
        {"buffer": {"max_bytes": 5, "when_full": "shut_down"}, "bytes_of": "record", "max_lateness": "2h"},
        {"until": "window_close", "grace": "2h"},
        {"until": "window_close", "grace": 0, "buffer": {"max_bytes": "1GiB", "when_full": "spill"}},
        {"until": "window_close", "grace": "2h", "buffer": {"max_keys": 9, "when_full": "shut_down"}},
    ],
)
def test_every_valid_combination_is_accepted(given: dict[str, Any]) -> None:
    read(SuppressionConfig, {"kind": "suppression", "input": "records"} | given)


@pytest.mark.parametrize(
    ("given", "where", "cause"),
    [
        ({}, "buffer", "no rule would ever release a record"),
        ({"buffer": {"max_keys": 5, "when_full": "spill"}}, "buffer", "no rule would ever release a record"),
        ({"until": LIMIT, "buffer": {"max_keys": 5}}, "buffer", "when_full is missing or unknown"),
        (
            {"until": LIMIT, "buffer": {"max_keys": 5, "when_full": "panic"}},
            "buffer",
            "when_full is missing or unknown",
        ),
        ({"until": LIMIT, "buffer": {"when_full": "emit"}}, "buffer.max_bytes", "a buffer without a bound"),
        ({"until": LIMIT, "buffer": 5}, "buffer", "not a buffer"),
        ({"until": LIMIT, "buffer": {"max_keys": -1, "when_full": "emit"}}, "buffer.max_keys", "too small"),
        ({"until": "window_close"}, "grace", "required with until: window_close"),
        ({"until": LIMIT, "grace": "2h"}, "grace", "only until: window_close has a grace"),
        ({"until": "some day"}, "until", "neither a time limit nor window_close"),
        ({"until": {"time_limit": 30}}, "until.time_limit", "a duration needs a unit"),
        ({"until": {"limit": "30s"}}, "until.limit", "unknown key"),
    ],
)
def test_an_unsound_combination_is_refused_at_its_option(given: dict[str, Any], where: str, cause: str) -> None:
    assert cause in problems(**given)[where]


def test_final_results_refuse_to_be_emitted_early_and_have_no_timer() -> None:
    found = problems(until="window_close", buffer={"max_keys": 5, "when_full": "emit"}, timer="last_update")
    assert set(found) == {"buffer", "grace", "timer"}
