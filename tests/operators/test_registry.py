"""The registry of operators."""

from __future__ import annotations

import pytest

from tidegate.contracts.errors import UserError
from tidegate.contracts.log_schema import log_schema
from tidegate.operators import registry
from tidegate.operators.suppression import Suppression, SuppressionConfig

pytestmark = pytest.mark.fast


def test_a_kind_has_a_configuration_and_an_operator() -> None:
    assert registry.config_type("suppression") is SuppressionConfig
    operator = registry.operator_for(SuppressionConfig(input="records", until={"time_limit": "1s"}))
    assert isinstance(operator, Suppression)
    assert {"place", "arrival", "key"} <= set(log_schema(operator.columns).names)


def test_an_unknown_kind_is_refused_with_a_list_of_kinds() -> None:
    with pytest.raises(UserError, match="no operator of kind supression") as refused:
        registry.config_type("supression")
    assert "suppression" in refused.value.remedy
