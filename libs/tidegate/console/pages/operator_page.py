"""The page of an operator, now or as it was after a batch, and the numbers of its charts."""

from __future__ import annotations

from typing import Any

from fastapi.responses import Response

from tidegate.console.operator_page import (
    NEWEST_BATCHES,
    history_of,
    status_after,
    without_log,
)
from tidegate.console.overview import Problem, problems_of, summary_of
from tidegate.console.pages.rendering import page
from tidegate.console.pages.sources import Sources, content_of
from tidegate.console.series import CHARTED_BATCHES, charts_of
from tidegate.contracts.batch_metadata import BatchMeta
from tidegate.contracts.clock import SYSTEM_CLOCK
from tidegate.contracts.errors import UserError
from tidegate.runtime.configuration.application import Application
from tidegate.runtime.doctor.findings import Finding
from tidegate.runtime.doctor.status import operator_status
from tidegate.state.delta_log.operator_log import OperatorLog
from tidegate.state.earlier_batches import log_after, readable_batches
from tidegate.state.lake.opening import open_lake


def operator_page(sources: Sources, name: str, batch: int | None) -> Response:
    """Return the page of an operator. Raise UserError if the log does not reach back to the batch."""
    config, application = sources.config(name), sources.application
    problems: list[Problem | Finding] = []
    if batch is None:
        status = operator_status(application, name, sources.ends_of())
        problems = [*problems_of(name, status), *(each for each in sources.findings() if each.about == name)]
        log = None if status["log"] is None else _after(application, name, None)[0]
    else:
        log, newest = _after(application, name, batch)
        status = status_after(newest)
    history = without_log(config)
    if log is not None:
        metas = sources.batches[name].newest_of(log, NEWEST_BATCHES + 1)
        history = history_of(metas, config, status["metrics"])
    facts: dict[str, Any] = {
        "problems_found": problems,
        "known": status,
        "history": history,
        "holds": content_of(config),
        "asked": batch,
        "batches": readable_batches(open_lake(application.lake / name)) if log is not None else range(0),
    }
    return page("operator.html", summary=summary_of(name, config, status, SYSTEM_CLOCK.now_ms()), **facts)


def series_of(sources: Sources, name: str, batch: int | None) -> dict[str, Any]:
    """Return the charts of the newest batches up to `batch`. Raise UserError if the log does not reach back to it."""
    sources.config(name)
    log, _newest = _after(sources.application, name, batch)
    return charts_of(sources.batches[name].newest_of(log, CHARTED_BATCHES))


def _after(application: Application, name: str, batch: int | None) -> tuple[OperatorLog, BatchMeta]:
    """Return the log after the batch, and the metadata there."""
    log = log_after(open_lake(application.lake / name), batch)
    newest = log.newest()
    if newest is None:
        raise UserError("the operator has no batch yet", value=log.place, remedy="start the operator: tidegate run")
    return log, newest
