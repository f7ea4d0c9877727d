"""Which configurations of windows are accepted."""

from __future__ import annotations

from typing import Any

import pytest

from tidegate.contracts.config.base import read
from tidegate.contracts.errors import ConfigurationError
from tidegate.operators.windowed_aggregation import WindowedAggregationConfig

pytestmark = pytest.mark.fast

GOOD = {"input": "in", "window": {"tumbling": "1h", "grace": "2h"}, "aggregate": {"count": True}, "emit": "final"}


@pytest.mark.parametrize(
    ("changed", "cause"),
    [
        ({"window": {"tumbling": "1h"}}, "required"),
        ({"window": {"tumbling": "0ms", "grace": 0}}, "write more than 0"),
        ({"window": {"hopping": "1h", "advance": "2h", "grace": 0}}, "between two windows"),
        ({"window": {"tumbling": "1h", "grace": 0, "retention": "1d"}}, "not an option of the window"),
        ({"window": {"unlimited": True, "grace": 0}}, "never ends has no grace"),
        ({"window": {"unlimited": True}}, "never ends, so nothing"),
        ({"window": {"unlimited": True}, "emit": "updates", "retention": "1d"}, "kept for ever"),
        ({"window": {"tumbling": "1h", "hopping": "1h", "grace": 0}}, "not a window"),
        ({"window": "1h"}, "not a window"),
        ({"retention": "2h"}, "before they close"),
        ({"window": {"session": "1h", "grace": "2h"}, "retention": "2h"}, "before they close"),
        ({"aggregate": {}}, "nothing to compute"),
        ({"emit": "updates", "buffer": {"max_keys": 1, "when_full": "spill"}}, "only final results"),
        ({"buffer": {"max_keys": 1, "when_full": "emit"}}, "spill"),
        ({"emit": "sometimes"}, "final"),
    ],
)
def test_impossible_configurations_are_refused(changed: dict[str, Any], cause: str) -> None:
    with pytest.raises(ConfigurationError) as refused:
        read(WindowedAggregationConfig, GOOD | changed)
    assert cause in str(refused.value)


def test_the_example_of_the_readme_is_valid() -> None:
    config = read(
        WindowedAggregationConfig, GOOD | {"retention": "1d", "buffer": {"max_keys": 100_000, "when_full": "shut_down"}}
    )
    assert config.retention == 86_400_000
