"""Skipping records that the input has lost, after a person has accepted the loss."""

from __future__ import annotations

from collections.abc import Mapping
from uuid import uuid4

from tidegate.contracts.errors import UserError
from tidegate.runtime.batch_loop import preflight
from tidegate.runtime.batch_loop.next_metadata import after_claim, after_skip
from tidegate.runtime.configuration.application import Application
from tidegate.runtime.environment import REAL, Environment
from tidegate.runtime.kafka import offsets
from tidegate.runtime.repair.logs import existing_log

Ranges = Mapping[int, tuple[int, int]]
"""Per partition the lost offsets [from, to): lost before they were read.

With `to` before `from`: lost after they were read; the operator goes back to `to`.
"""


def check_skip(lost: Ranges, named: Ranges) -> None:
    """Raise UserError unless each named range is lost and starts where the loss starts."""
    for partition, (start, end) in named.items():
        gone = lost.get(partition)
        if gone is None or start != gone[0] or not (start < end <= gone[1] or end == gone[1]):
            raise UserError(
                f"offsets {start} to {end} of partition {partition} are not those that were lost before they were read",
                value=f"lost: {shown(lost) or 'nothing'}",
                remedy="name ranges that are lost: PARTITION:FROM-TO, where TO is the first offset to read next",
            )


def shown(ranges: Ranges) -> str:
    """Return the ranges in the syntax of `tidegate skip`."""
    return " ".join(f"{partition}:{start}-{end}" for partition, (start, end) in sorted(ranges.items()))


def skip(
    application: Application, name: str, named: Ranges, *, topic: str | None = None, environment: Environment = REAL
) -> int:
    """Make the operator continue after the ranges; return the batch that records the skip.

    `topic`: the input topic that has lost them; None: the first one.

    No driver should run meanwhile: the commit is a claim, which fences it.
    Raise UserError if a range is not lost; StateError if a topic changed since the log was written.
    """
    config, kafka = application.operators[name], environment.kafka(application.kafka)
    log = existing_log(application, name, environment)
    newest = log.newest()
    if newest is None:
        raise UserError("nothing has been read yet, so nothing is lost", value=name, remedy="run the operator")
    preflight.check_topics(newest, config, preflight.find_topics(kafka, config, newest.topics))
    if topic not in (None, *config.inputs):
        raise UserError("it is no input topic", value=topic, remedy=f"name one of {', '.join(config.inputs)}")
    topic = topic or config.input
    lost = preflight.lost_ranges(newest, topic, offsets.earliest(kafka, topic))
    check_skip(lost | preflight.truncated_ranges(kafka, newest, topic), named)
    claim = after_claim(
        newest, attempt=uuid4().hex, clock=environment.clock.now_ms(), config=newest.config, topics=newest.topics
    )
    epochs = preflight.remaining_epochs(kafka, newest, topic, named)
    # rule: skip-keeps-leader-epoch/passed
    log.commit(after_skip(claim, named, epochs, topic), [])
    return claim.batch
