"""What a join's configuration refuses, and why."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from tidegate.contracts.config.operator_config import TableFacts
from tidegate.contracts.config.rules import TableRead
from tidegate.operators.stream_table_join.config import StreamTableJoinConfig

pytestmark = pytest.mark.fast

DAY_MS = 86_400_000


def config(**given: Any) -> StreamTableJoinConfig:
    """An inner join, with more or something else."""
    return StreamTableJoinConfig.model_validate({"input": "records", "table": "weather", "join": "inner"} | given)


@pytest.mark.parametrize("missing", ["join", "table", "input"])
def test_join_table_and_input_are_required(missing: str) -> None:
    raw = {"input": "records", "table": "weather", "join": "inner"}
    del raw[missing]
    with pytest.raises(ValidationError, match=missing):
        StreamTableJoinConfig.model_validate(raw)


@pytest.mark.parametrize("given", [{}, {"grace": 0}, {"grace": "0ms"}])
def test_wait_for_table_needs_a_grace(given: dict[str, Any]) -> None:
    with pytest.raises(ValidationError, match="add a grace"):
        config(wait_for_table="1m", **given)


@pytest.mark.parametrize("joiner", ["module", "module:", ":function", "module:a.b", "a module:function", "m:f:g"])
def test_a_joiner_is_a_function_of_a_module(joiner: str) -> None:
    with pytest.raises(ValidationError, match="joiner"):
        config(joiner=joiner)


def test_a_join_declares_its_table_its_wait_and_its_joiner() -> None:
    told = config(grace="5m", wait_for_table="1m", joiner="some.module:function")
    assert told.reads() == (TableRead("weather", 300_000, 60_000),)
    assert told.functions() == ("some.module:function",)
    assert (config().reads(), config().functions()) == ((TableRead("weather", 0, None),), ())


@pytest.mark.parametrize("grace", ["1d", "25h"])
def test_a_history_kept_no_longer_than_the_grace_is_refused(grace: str) -> None:
    refused = next(config(grace=grace).table_conflicts(TableFacts(DAY_MS)))
    assert "history_retention 1d is not greater than grace" in refused.cause
    assert refused.remedy == "raise the table's history_retention or lower grace"


@pytest.mark.parametrize("grace", [0, "1s"])
def test_a_table_of_latest_values_has_no_grace(grace: Any) -> None:
    refused = next(config(grace=grace).table_conflicts(TableFacts(None)))
    assert "latest values" in refused.cause and "remove grace" in refused.remedy


@pytest.mark.parametrize(("grace", "retention"), [(None, None), (None, 0), ("23h", DAY_MS), (0, 1)])
def test_different_tables_are_accepted(grace: Any, retention: int | None) -> None:
    assert not list(config(grace=grace).table_conflicts(TableFacts(retention)))
