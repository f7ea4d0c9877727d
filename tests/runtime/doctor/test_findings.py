"""How findings are shown."""

from __future__ import annotations

import pytest

from tidegate.contracts.errors import ConfigurationError, EngineError, Problem
from tidegate.runtime.doctor.findings import of_error, roughly

pytestmark = pytest.mark.fast

DAY_MS = 24 * 3_600_000


def test_durations_are_rounded_for_people() -> None:
    told = {400: "400ms", 61_234: "61s", 3_600_123: "1h", 5_430_000: "90m", 8 * DAY_MS + 1_234_567: "8d"}
    assert {duration_ms: roughly(duration_ms) for duration_ms in told} == told


def test_an_error_is_a_finding_with_its_value_on_one_line() -> None:
    found = of_error("kafka", EngineError("no broker", value="a\n  b", remedy="start it"))
    assert (found.about, found.problem, found.value, found.remedy) == ("kafka", "no broker", "a b", "start it")


def test_problems_of_a_configuration_are_listed_by_place_without_values() -> None:
    problem = Problem(where="sasl.mechanism", value="s3cr3t", cause="unknown", remedy="write PLAIN")
    found = of_error("kafka", ConfigurationError([problem]))
    assert found.value == "sasl.mechanism: unknown"
    assert found.remedy
