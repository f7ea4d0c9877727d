"""Explains why an operator, or one of its partitions, makes progress or does not. Pure: facts in, explanation out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple, cast, get_args

from tidegate.runtime.kafka.open_transactions import OpenTransaction
from tidegate.runtime.telemetry.driver_status import DriverStatus, FailureState

Rule = Literal[
    "running",
    "standing by",
    "starting",
    "waiting",
    "waiting for table",
    "broker away",
    "lake away",
    "no driver",
    "bound reached",
    "fenced",
    "refused",
    "stopped",
    "records lost",
    "topic cut",
    "publication unclear",
    "recovering",
    "behind",
    "held up",
    "open transaction",
    "no input",
    "unknown",
]


class Explanation(NamedTuple):
    """The rule that applies, by its name, and its explanation for people."""

    rule: Rule
    text: str


@dataclass(frozen=True, kw_only=True)
class OperatorFacts:
    """What is known of an operator.

    `driven`: a driver runs. `elsewhere`: on which other machine, "" if it runs here. `status`: the status that a driver
    last wrote on this machine. `kafka_error`: why no broker can be reached, "" if one can; `lake_error`: why the lake
    cannot, which alone knows whether a driver runs.
    """

    driven: bool
    status: DriverStatus | None
    elsewhere: str = ""
    kafka_error: str = ""
    lake_error: str = ""


@dataclass(frozen=True, kw_only=True)
class PartitionFacts:
    """What is known of one partition: the next offset to read, and the topic's first, last stable and end offset.

    An offset that is not known is None. `unclear`: Kafka has not confirmed the newest output. `recovering`: why the
    local state is being rebuilt, "" if it is not.
    """

    next_offset: int
    first: int | None = None
    stable: int | None = None
    end: int | None = None
    open_transactions: Sequence[OpenTransaction] = ()
    unclear: bool = False
    recovering: str = ""


def explain_operator(facts: OperatorFacts) -> Explanation:
    """Explain what the operator as a whole does or waits for.

    If the driver has ended, explain that, even if neither a broker nor the lake answers.
    """
    status = facts.status
    if not facts.driven:
        ended = _ended(status)
        if facts.lake_error and ended.rule == "no driver":
            return Explanation("lake away", f"{facts.lake_error}; a driver that runs continues when the lake answers")
        return ended
    if facts.kafka_error:
        return Explanation("broker away", f"{facts.kafka_error}; the driver continues when a broker answers")
    if facts.elsewhere:
        return Explanation("running", f"a driver runs elsewhere: {facts.elsewhere}")
    if status is not None and status.state == "waiting":
        return Explanation("waiting", status.why)
    if status is None or status.state == "starting":
        return Explanation("starting", "a driver is starting")
    if status.waits:
        return Explanation("waiting for table", status.waits)
    if status.recovering:
        rebuilt = f"{len(status.recovering)} local states are being rebuilt from the log; other partitions continue"
        return Explanation("recovering", f"a driver runs on this machine; {rebuilt}")
    return Explanation("running", "a driver runs on this machine")


def _ended(status: DriverStatus | None) -> Explanation:
    if status is not None and status.state in get_args(FailureState):
        return Explanation(cast(Rule, status.state), status.why)
    if status is not None and status.state == "standing by":
        return Explanation("standing by", status.why)
    if status is not None and status.state != "drained":
        return Explanation("no driver", f"the driver was killed while {status.state}: tidegate run")
    return Explanation("no driver", "no driver runs: tidegate run")


def explain_partition(operator: Explanation, facts: PartitionFacts) -> Explanation:
    """Explain why the partition makes progress or does not. Problems of the topic take precedence."""
    following, first, stable, end = facts.next_offset, facts.first, facts.stable, facts.end
    if first is None or stable is None or end is None:
        return Explanation("unknown", "the topic's offsets are unknown: no broker answers")
    if first > following:
        return Explanation(
            "records lost", f"offsets {following} to {first - 1} were deleted before they were read: tidegate skip"
        )
    if end < following:
        return Explanation("topic cut", f"the topic ends at {end}, before the next offset: it lost its newest records")
    if facts.unclear:
        return Explanation(
            "publication unclear",
            "Kafka has not confirmed the newest output; the driver finds out first whether it was published",
        )
    if facts.recovering:
        return Explanation("recovering", f"its local state is being rebuilt from the log: {facts.recovering}")
    if stable > following:
        return _behind(operator, stable - following)
    if end > stable:
        return Explanation("open transaction", _blocked(stable, facts.open_transactions))
    return Explanation("no input", "all records of the topic have been read")


def _behind(operator: Explanation, records: int) -> Explanation:
    if operator.rule in ("running", "recovering", "waiting for table"):
        return Explanation("behind", f"{records:,} offsets to read")
    return Explanation("held up", f"{records:,} offsets to read; {operator.rule}")


def _blocked(stable: int, found: Sequence[OpenTransaction]) -> str:
    if not found:
        return f"waits for another producer's transaction, open at offset {stable}, to end or time out"
    one = found[0]
    name = f"{one.transactional_id!r} (producer id {one.producer_id})" if one.transactional_id else one.producer_id
    return f"waits for the transaction of {name}, open since offset {one.first_offset}, to end"
