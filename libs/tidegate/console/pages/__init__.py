"""The pages of the console and their addresses."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any

from fastapi import FastAPI, Query, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import Response
from starlette.exceptions import HTTPException

from tidegate.console import rows
from tidegate.console.access import Gate, Logins
from tidegate.console.operator_page import history_of, without_log
from tidegate.console.overview import overview_of, problems_of, summary_of
from tidegate.console.pages.explain_page import explain_page
from tidegate.console.pages.login import add_login, login_page
from tidegate.console.pages.rendering import error_page, page
from tidegate.console.pages.rows_page import KINDS, rows_page
from tidegate.console.pages.sources import Sources, content_of
from tidegate.contracts.clock import SYSTEM_CLOCK
from tidegate.contracts.errors import TidegateError, UserError
from tidegate.runtime.configuration.application import Application
from tidegate.runtime.doctor.status import application_status, operator_status
from tidegate.state.delta_log.positions import Position


def console(application: Application, logins: Logins, names: Sequence[str]) -> Gate:
    """Return the console as an ASGI application that answers to these host names, and to localhost and IP addresses."""
    app = FastAPI(title="Tidegate", docs_url=None, redoc_url=None, openapi_url=None)
    add_login(app, logins)
    _add_pages(app, Sources(application))
    _add_errors(app)
    return Gate(app, logins, names, lambda request: login_page(request, status=401))


def _add_pages(app: FastAPI, sources: Sources) -> None:
    application = sources.application

    @app.get("/")
    def overview() -> Response:
        status = application_status(application, sources.ends_of())
        found = overview_of(application, status, sources.findings(), SYSTEM_CLOCK.now_ms())
        return page("overview.html", application=application.application, overview=found)

    @app.get("/operators/{name}")
    def operator(name: str) -> Response:
        config = sources.config(name)
        status = operator_status(application, name, sources.ends_of())
        has_log = status["log"] is not None
        history = history_of(application.lake / name, config, status["metrics"]) if has_log else without_log(config)
        problems = [*problems_of(name, status), *(each for each in sources.findings() if each.about == name)]
        facts: dict[str, Any] = {
            "problems_found": problems,
            "known": status,
            "history": history,
            "holds": content_of(config),
        }
        return page("operator.html", summary=summary_of(name, config, status, SYSTEM_CLOCK.now_ms()), **facts)

    @app.get("/operators/{name}/explain")
    def explain(name: str, at: str) -> Response:
        return explain_page(application, name, sources.config(name), Position.of(at))

    @app.get("/operators/{name}/{what}")
    def browse(
        name: str,
        what: str,
        step: str | None = None,
        partition: Annotated[int | None, Query(ge=0, lt=2**31)] = None,
        batch: Annotated[int | None, Query(ge=0, lt=2**62)] = None,
        before: str | None = None,
    ) -> Response:
        if what not in KINDS:
            raise UserError("there is no such page", value=what[:100], remedy=f"pages: {', '.join(KINDS)}")
        rules = sources.rules(name, step)
        position = None if before is None else Position.of(before)
        query = rows.Query(kind=KINDS[what], step=step, partition=partition, batch=batch, before=position)
        return rows_page(application, name, what, rules, query)


def _add_errors(app: FastAPI) -> None:
    @app.exception_handler(TidegateError)
    def tidegate_error(_request: Request, error: Exception) -> Response:
        assert isinstance(error, TidegateError)
        return error_page(404 if isinstance(error, UserError) else 503, error)

    @app.exception_handler(HTTPException)
    def no_page(_request: Request, error: Exception) -> Response:
        assert isinstance(error, HTTPException)
        return error_page(error.status_code, UserError("there is no such page", remedy="begin at the overview"))

    @app.exception_handler(RequestValidationError)
    def wrong_query(_request: Request, _error: Exception) -> Response:
        remedy = "follow the links of the pages; batch and partition are whole numbers, from 0"
        return error_page(400, UserError("the address has a wrong value", remedy=remedy))
