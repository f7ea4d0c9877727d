"""The page of an operator, now or as it was after a batch, and the numbers of its charts."""

from __future__ import annotations

from typing import Any

from fastapi.responses import Response

from tidegate.console.operator_page import history_of, status_after, without_log
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
from tidegate.state.earlier_batches import log_after, metas_of, readable_batches
from tidegate.state.lake.opening import open_lake


def operator_page(sources: Sources, name: str, batch: int | None) -> Response:
    """Return the page of an operator. Raise UserError if the log does not reach back to the batch."""
    config, application = sources.config(name), sources.application
    problems: list[Problem | Finding] = []
    if batch is None:
        status = operator_status(application, name, sources.ends_of())
        problems = [*problems_of(name, status), *(each for each in sources.findings() if each.about == name)]
    else:
        status = status_after(_after(application, name, batch)[1])
    has_log = status["log"] is not None
    history = without_log(config)
    if has_log:
        history = history_of(*_after(application, name, batch), config, status["metrics"])
    facts: dict[str, Any] = {
        "problems_found": problems,
        "known": status,
        "history": history,
        "holds": content_of(config),
        "asked": batch,
        "batches": readable_batches(open_lake(application.lake / name)) if has_log else range(0),
    }
    return page("operator.html", summary=summary_of(name, config, status, SYSTEM_CLOCK.now_ms()), **facts)


def series_of(application: Application, name: str, batch: int | None) -> dict[str, Any]:
    """Return the charts of the newest batches up to `batch`. Raise UserError if the log does not reach back to it."""
    log, newest = _after(application, name, batch)
    return charts_of(metas_of(log, range(max(0, newest.batch - CHARTED_BATCHES + 1), newest.batch + 1)))


def _after(application: Application, name: str, batch: int | None) -> tuple[OperatorLog, BatchMeta]:
    """Return the log after the batch, and the metadata there."""
    log = log_after(open_lake(application.lake / name), batch)
    newest = log.newest()
    if newest is None:
        raise UserError("the operator has no batch yet", value=log.place, remedy="start the operator: tidegate run")
    return log, newest
