"""The operator log that a repair continues."""

from __future__ import annotations

from tidegate.contracts.log_schema import log_schema
from tidegate.operators.registry import columns_of
from tidegate.runtime.configuration.application import Application
from tidegate.runtime.environment import Environment
from tidegate.state.delta_log.operator_log import OperatorLog


def existing_log(application: Application, name: str, environment: Environment) -> OperatorLog:
    """Open the operator's log, which a repair never creates."""
    return OperatorLog.open(
        environment.lake(application.lake / name),
        name,
        log_schema(columns_of(application.operators[name])),
        create=False,
        steps_change=True,
        clock=environment.clock,
    )
