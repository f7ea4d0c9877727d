"""What the overview shows: each operator as of its newest commit, and what is wrong, first."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from tidegate.contracts.config.operator_config import OperatorConfig
from tidegate.runtime.configuration.application import Application
from tidegate.runtime.doctor.findings import Finding

EARLIER = "earlier"
"""Rule of an operator that is shown as it was after an earlier batch."""

HEALTHY = frozenset({EARLIER, "running", "standing by", "starting", "recovering", "behind", "no input", "unknown"})
"""Rules of `tidegate status` that nobody has to do something about. `unknown`: no broker answers, which the operator
says."""

TOTALS = ("records_in", "applied", "superseded", "late", "rejected", "emitted", "held", "held_bytes")


class Problem(NamedTuple):
    """Something that is wrong: what it concerns, the problem, the value that shows it, and the remedy."""

    about: str
    problem: str
    value: str = ""
    remedy: str = ""


@dataclass(frozen=True, kw_only=True)
class OperatorSummary:
    """An operator on the overview.

    `rule`, `why`: its state as `tidegate status` explains it. `log`: whether it has a log; without one there are no
    figures. `stream_time`: the smallest and the largest of its partitions, ms. `totals`: over all partitions.
    `rate`: records read per second over the last minute before the newest batch. It and `lag` are None if not known.
    """

    name: str
    kind: str
    input: str
    outputs: Sequence[str]
    tables: Sequence[str]
    steps: Sequence[str]
    rule: str
    why: str
    log: bool = False
    batch: int = -1
    action: str = ""
    age_ms: int = 0
    stream_time: tuple[int, int] | None = None
    totals: Mapping[str, int]
    rate: float | None = None
    lag: int | None = None

    @property
    def is_wrong(self) -> bool:
        """Return whether somebody has to do something about its state."""
        return self.rule not in HEALTHY


@dataclass(frozen=True, kw_only=True)
class Overview:
    """What is wrong in an application, and its operators: those first that something is wrong with."""

    problems: Sequence[Problem]
    operators: Sequence[OperatorSummary]


def overview_of(
    application: Application, status: Mapping[str, Mapping[str, Any]], found: Sequence[Finding], now_ms: int
) -> Overview:
    """Return what the overview shows. `status`: that of each operator; `found`: the findings; `now_ms`: wall clock."""
    operators = [summary_of(name, config, status[name], now_ms) for name, config in application.operators.items()]
    problems = [problem for name in application.operators for problem in problems_of(name, status[name])]
    problems += [Problem(each.about, each.problem, each.value, each.remedy) for each in found]
    concerned = {problem.about for problem in problems}
    ordered = sorted(operators, key=lambda each: (not each.is_wrong, each.name not in concerned))
    return Overview(problems=problems, operators=ordered)


def problems_of(name: str, status: Mapping[str, Any]) -> list[Problem]:
    """Return what the status of an operator and its partitions says is wrong; what partitions share, once."""
    texts: dict[tuple[str, str], list[int]] = {}
    if status["why"]["rule"] not in HEALTHY:
        texts[status["why"]["rule"], status["why"]["text"]] = []
    for row in status.get("partitions", ()):
        if row["why"]["rule"] not in HEALTHY:
            texts.setdefault((row["why"]["rule"], row["why"]["text"]), []).append(row["partition"])
    return [Problem(name, rule, _which(partitions), text) for (rule, text), partitions in texts.items()]


def _which(partitions: Sequence[int]) -> str:
    return f"partition{'s' * (len(partitions) > 1)} {', '.join(map(str, partitions))}" if partitions else ""


def summary_of(name: str, config: OperatorConfig, status: Mapping[str, Any], now_ms: int) -> OperatorSummary:
    """Return the summary of an operator from its configuration and status."""
    partitions = status.get("partitions", ())
    facts: dict[str, Any] = {}
    if status["log"] is not None:
        times = [row["stream_time"] for row in partitions if row["stream_time"] >= 0]
        facts = {
            "batch": status["batch"],
            "action": status["action"],
            "age_ms": now_ms - status["clock"],
            "stream_time": (min(times), max(times)) if times else None,
            "rate": status["metrics"].get("records_in_rate_60s"),
            "lag": _sum_if_known([row["lag"] for row in partitions]),
        }
    return OperatorSummary(
        name=name,
        kind=config.kind,
        input=", ".join(config.inputs),
        outputs=[output.topic for output in config.outputs()],
        tables=[read.table for read in config.reads()],
        steps=list(config.operators),
        rule=status["why"]["rule"],
        why=status["why"]["text"],
        log=status["log"] is not None,
        totals={total: sum(row[total] for row in partitions) for total in TOTALS},
        **facts,
    )


def _sum_if_known(numbers: Sequence[int | None]) -> int | None:
    return None if None in numbers else sum(number or 0 for number in numbers)
