"""Checks that driver and executors share the lake: each side reads what the other has written.

Executors that have a different folder under the same path would write files that nobody else ever sees.
"""

from __future__ import annotations

import os
import secrets
import socket
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

from tidegate.contracts.errors import EngineError
from tidegate.state import disk
from tidegate.state.delta_log.log_entries import STAGING

_CONTENT = b"written to see whether driver and executors share this lake"


class ProbeResult(NamedTuple):
    """What a task found: where it ran (`place`), the file it wrote (`answer`), or why it wrote none (`problem`)."""

    place: str
    answer: str | None
    problem: str = ""


def check_shared(log: Path, on_executors: Callable[[Path], Sequence[ProbeResult]]) -> None:
    """Raise EngineError unless driver and executors see each other's files in the log's folder.

    `on_executors` calls `answer_probe` with the probe on every executor.
    """
    with disk.disk_errors(log), disk.staged(log / STAGING, _CONTENT) as probe:
        results = on_executors(probe)
        faults = [fault for result in results if (fault := _fault(probe, result))]
        for result in results:
            if result.answer is not None:
                probe.with_name(result.answer).unlink(missing_ok=True)
    if faults:
        raise EngineError(
            "executors do not share the lake with the driver",
            value=f"{log}: {faults[0]}",
            remedy="mount the same file system under the same path on every machine of the cluster, for the same user",
        )


def answer_probe(probe: Path) -> ProbeResult:
    """Read the driver's probe and write an answer next to it. Runs in a task."""
    place, answer = f"{socket.gethostname()}, process {os.getpid()}", f"{probe.name}-{secrets.token_hex(8)}"
    try:
        probe.read_bytes()
        probe.with_name(answer).write_bytes(_CONTENT)
    except OSError as error:
        return ProbeResult(place, None, str(error.strerror))
    return ProbeResult(place, answer)


def _fault(probe: Path, result: ProbeResult) -> str | None:
    # rule: shared-lake
    if result.answer is None:
        return f"{result.place} does not see what the driver wrote: {result.problem}"
    # rule: shared-lake
    if not probe.with_name(result.answer).exists():
        return f"the driver does not see what {result.place} wrote"
    return None
