"""A table's configuration: what is accepted, and what is refused with its cause and remedy."""

from __future__ import annotations

from typing import Any

import pytest

from tidegate.contracts.config.base import read
from tidegate.contracts.config.operator_config import TableFacts
from tidegate.contracts.errors import ConfigurationError
from tidegate.operators.table_history import TableHistoryConfig

pytestmark = pytest.mark.fast

RAW = {"kind": "table_history", "input": "records"}


@pytest.mark.parametrize(
    ("given", "retention"),
    [({"history_retention": "30d"}, 30 * 86_400_000), ({"history_retention": 0}, 0), ({"versions": "latest"}, None)],
)
def test_a_table_is_a_history_of_some_length_or_of_latest_values(given: dict[str, Any], retention: int | None) -> None:
    assert read(TableHistoryConfig, RAW | given).as_table() == TableFacts(history_retention=retention)


@pytest.mark.parametrize(
    ("given", "where", "cause"),
    [
        ({}, "history_retention", "required for a history"),
        ({"history_retention": 30}, "history_retention", "a duration needs a unit"),
        ({"versions": "latest", "history_retention": "1d"}, "history_retention", "has no history to keep"),
        ({"versions": "all", "history_retention": "1d"}, "versions", "not a value of this option"),
        ({"history_retention": "1d", "output": "topic"}, "output", "a table emits nothing"),
        ({"history_retention": "1d", "idle_after": "1m"}, "idle_after", "a table holds no records back"),
    ],
)
def test_a_refused_change_is_reported_with_its_cause_and_a_remedy(
    given: dict[str, Any], where: str, cause: str
) -> None:
    with pytest.raises(ConfigurationError) as refused:
        read(TableHistoryConfig, RAW | given)
    found = {problem.where: problem for problem in refused.value.problems}
    assert cause in found[where].cause
    assert found[where].remedy
