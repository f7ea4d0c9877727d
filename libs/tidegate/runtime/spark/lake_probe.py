"""Checks that driver and executors share the lake: each side reads what the other has written.

Executors that have a different folder under the same path would write files that nobody else ever sees.
"""

from __future__ import annotations

import os
import secrets
import socket
from collections.abc import Callable, Sequence
from typing import NamedTuple

from tidegate.contracts.errors import EngineError, UserError
from tidegate.state.lake.port import Lake
from tidegate.state.lake.posix_lake import STAGING

_CONTENT = b"written to see whether driver and executors share this lake"


class ProbeResult(NamedTuple):
    """What a task found: where it ran (`place`), the key that it wrote (`answer`), or why it wrote none (`problem`)."""

    place: str
    answer: str | None
    problem: str = ""


def check_shared(log: Lake, on_executors: Callable[[str], Sequence[ProbeResult]]) -> None:
    """Raise EngineError unless driver and executors see each other's files in the log's place.

    `on_executors` calls `answer_probe` with the probe's key on every executor.
    """
    probe = f"{STAGING}/{secrets.token_hex(8)}"
    log.put(probe, _CONTENT)
    try:
        results = on_executors(probe)
        faults = [fault for result in results if (fault := _fault(log, result))]
    finally:
        log.delete([probe])
    log.delete([result.answer for result in results if result.answer is not None])
    if faults:
        raise EngineError(
            "executors do not share the lake with the driver",
            value=f"{log.place}: {faults[0]}",
            remedy="mount the same file system under the same path on every machine of the cluster, for the same user",
        )


def answer_probe(log: Lake, probe: str) -> ProbeResult:
    """Read the driver's probe and write an answer next to it. Runs in a task."""
    place, answer = f"{socket.gethostname()}, process {os.getpid()}", f"{probe}-{secrets.token_hex(8)}"
    try:
        if log.get(probe) is None:
            return ProbeResult(place, None, "No such file or directory")
        log.put(answer, _CONTENT)
    except (EngineError, UserError) as error:
        return ProbeResult(place, None, error.problem)
    return ProbeResult(place, answer)


def _fault(log: Lake, result: ProbeResult) -> str | None:
    # rule: shared-lake
    if result.answer is None:
        return f"{result.place} does not see what the driver wrote: {result.problem}"
    # rule: shared-lake
    if log.etag(result.answer) is None:
        return f"the driver does not see what {result.place} wrote"
    return None
