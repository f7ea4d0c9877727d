"""Decides whether a service is healthy and whether it is ready. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, get_args

from tidegate.runtime.telemetry.driver_status import Condition, Incident
from tidegate.runtime.telemetry.explanation import Explanation, OperatorFacts, explain_operator
from tidegate.runtime.telemetry.observation import Observation

STUCK_AFTER_S = 900.0
"""A driver loop that has begun no round for this long, plus its trigger, is stuck. A batch's Kafka requests end within
a minute; the rebuild of a large state, which a restart must not interrupt, takes some minutes."""

_DRIVING = ("starting", "running", "waiting")


def health(seen: Sequence[Observation], trigger_s: float) -> dict[str, Any]:
    """Return `healthy`, and each driver's state and loop age.

    `healthy` is true if no driver has failed and no driver loop is stuck; a driver that was asked to end is healthy.
    """
    operators = {each.operator: {"state": each.condition.state, "loop_age_s": each.idle_s} for each in seen}
    return {"healthy": all(_turns(each, trigger_s) for each in seen), "operators": operators}


def readiness(seen: Sequence[Observation]) -> dict[str, Any]:
    """Return `ready`, and for each operator the explanation.

    `ready` is true if there is a driver, and every driver holds its claim and is processing.
    """
    why = {each.operator: _explained(each.condition) for each in seen}
    ready = bool(why) and all(each.rule == "running" for each in why.values())
    return {"ready": ready, "operators": {operator: each._asdict() for operator, each in why.items()}}


def _turns(seen: Observation, trigger_s: float) -> bool:
    if seen.condition.state in get_args(Incident):
        return False
    stuck = seen.idle_s is not None and seen.idle_s > STUCK_AFTER_S + trigger_s
    return not (stuck and seen.condition.state in _DRIVING)


def _explained(told: Condition) -> Explanation:
    return explain_operator(OperatorFacts(driven=told.state in _DRIVING, condition=told))
