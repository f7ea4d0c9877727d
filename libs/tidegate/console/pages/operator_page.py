"""The page of an operator, now or as it was after a batch, and the numbers of its charts."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from fastapi.responses import Response

from tidegate.console.operator_page import (
    NEWEST_BATCHES,
    history_of,
    status_after,
    without_log,
)
from tidegate.console.overview import Problem, problems_of, summary_of
from tidegate.console.pages.known_logs import KnownLog
from tidegate.console.pages.rendering import page
from tidegate.console.pages.sources import Sources, content_of
from tidegate.console.series import CHARTED_BATCHES, charts_of
from tidegate.contracts.batch_metadata import BatchMeta
from tidegate.contracts.clock import SYSTEM_CLOCK
from tidegate.contracts.errors import UserError
from tidegate.contracts.event_time import milliseconds_of
from tidegate.runtime.doctor.findings import Finding
from tidegate.runtime.doctor.status import operator_status
from tidegate.state.delta_log.log_version import LogVersion


def operator_page(sources: Sources, name: str, batch: int | None) -> Response:
    """Return the page of an operator. Raise UserError if the log does not reach back to the batch."""
    config, known = sources.config(name), sources.logs.of(name)
    problems: list[Problem | Finding] = []
    if batch is None:
        logs = sources.logs.for_page()
        status = operator_status(sources.application, name, sources.ends_of(), logs)
        problems = [*problems_of(name, status), *(each for each in sources.findings() if each.about == name)]
        log = None if status["log"] is None else logs.newest(name)
    else:
        log, newest = _after(known, batch)
        status = status_after(newest)
    history = without_log(config)
    if log is not None:
        metas = known.newest_of(log, NEWEST_BATCHES + 1)
        history = history_of(metas, config, status["metrics"])
    facts: dict[str, Any] = {
        "problems_found": problems,
        "known": status,
        "history": history,
        "holds": content_of(config),
        "asked": batch,
        "batches": known.readable(),
    }
    return page("operator.html", summary=summary_of(name, config, status, SYSTEM_CLOCK.now_ms()), **facts)


def series_of(sources: Sources, name: str, batch: int | None) -> dict[str, Any]:
    """Return the charts of the newest batches up to `batch`. Raise UserError if the log does not reach back to it."""
    sources.config(name)
    known = sources.logs.of(name)
    log, _newest = _after(known, batch)
    return charts_of(known.newest_of(log, CHARTED_BATCHES))


def batch_at(sources: Sources, name: str, time: str) -> int:
    """Return the newest batch at a time, as a form of browsers writes it: in UTC unless it says otherwise.

    Raise UserError if it is no time, or if the log does not reach back to it.
    """
    sources.config(name)
    try:
        clock_ms = milliseconds_of(datetime.fromisoformat(time))
    except ValueError:
        raise UserError("this is no time", value=time[:100], remedy="write it as in 2026-01-31T03:00") from None
    log = sources.logs.of(name).at_time(clock_ms)
    newest = None if log is None else log.newest()
    if newest is None:
        remedy = "name a later time; `rewind_window` says how far back a log can be read"
        raise UserError("the log does not reach back to that time", value=time, remedy=remedy)
    return newest.batch


def _after(known: KnownLog, batch: int | None) -> tuple[LogVersion, BatchMeta]:
    """Return the log after the batch, and the metadata there."""
    log = known.after(batch)
    newest = log.newest()
    if newest is None:
        raise UserError("the operator has no batch yet", value=log.place, remedy="start the operator: tidegate run")
    return log, newest
