"""The operator log that a repair continues."""

from __future__ import annotations

from tidegate.contracts.log_schema import log_schema
from tidegate.contracts.naming import log_path
from tidegate.operators.registry import operator_for
from tidegate.runtime.configuration.application import Application
from tidegate.runtime.environment import Environment
from tidegate.state.delta_log.operator_log import OperatorLog


def existing_log(application: Application, name: str, environment: Environment) -> OperatorLog:
    """Open the operator's log, which a repair never creates."""
    return OperatorLog.open(
        log_path(application.lake, name),
        name,
        log_schema(operator_for(application.operators[name]).columns),
        create=False,
        lake=environment.lake,
        clock=environment.clock,
    )
