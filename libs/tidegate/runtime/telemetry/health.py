"""Decides whether a service is healthy and whether it is ready. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, get_args

from tidegate.runtime.telemetry.driver_status import DriverStatus, FailureState
from tidegate.runtime.telemetry.explanation import Explanation, OperatorFacts, explain_operator
from tidegate.runtime.telemetry.observation import Observation

STUCK_AFTER_S = 900.0
"""A driver loop that has begun no round for this long, plus its trigger, is stuck. A batch's Kafka requests end within
a minute; the rebuild of a large state, which a restart must not interrupt, takes some minutes."""

_DRIVING = ("starting", "running", "waiting")


def health(observations: Sequence[Observation], trigger_s: float) -> dict[str, Any]:
    """Return `healthy`, and each driver's state and loop age.

    `healthy` is true if no driver has failed and no driver loop is stuck; a driver that was asked to end is healthy.
    """
    operators = {each.operator: {"state": each.status.state, "loop_age_s": each.loop_age_s} for each in observations}
    return {"healthy": all(_is_alive(each, trigger_s) for each in observations), "operators": operators}


def readiness(observations: Sequence[Observation]) -> dict[str, Any]:
    """Return `ready`, and for each operator the explanation.

    `ready` is true if there is a driver, and every driver stands by, or holds its claim, has recovered all local states
    and processes records. So a rolling update stops the old driver once the new one can take over. A driver that
    recovers is not ready but healthy: its partitions that are recovered are processed already.
    """
    why = {each.operator: _explained(each.status) for each in observations}
    ready = bool(why) and all(each.rule in ("running", "standing by") for each in why.values())
    return {"ready": ready, "operators": {operator: each._asdict() for operator, each in why.items()}}


def _is_alive(observation: Observation, trigger_s: float) -> bool:
    if observation.status.state in get_args(FailureState):
        return False
    stuck = observation.loop_age_s is not None and observation.loop_age_s > STUCK_AFTER_S + trigger_s
    return not (stuck and observation.status.state in _DRIVING)


def _explained(status: DriverStatus) -> Explanation:
    return explain_operator(OperatorFacts(driven=status.state in _DRIVING, status=status))
