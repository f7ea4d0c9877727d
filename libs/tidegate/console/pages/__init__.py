"""The pages of the console and their addresses."""

from __future__ import annotations

from collections.abc import Sequence

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse, RedirectResponse, Response
from starlette.exceptions import HTTPException

from tidegate.console import rows
from tidegate.console.access import Gate, Logins
from tidegate.console.key_history import KeyQuery
from tidegate.console.overview import overview_of
from tidegate.console.pages.act_page import add_actions
from tidegate.console.pages.explain_page import explain_page
from tidegate.console.pages.key_page import key_page
from tidegate.console.pages.login import add_login, login_page
from tidegate.console.pages.operator_page import batch_at, operator_page, series_of
from tidegate.console.pages.parameters import BatchNumber, Partition
from tidegate.console.pages.rendering import error_page, page
from tidegate.console.pages.retries import ReadAgain
from tidegate.console.pages.rows_page import KINDS, rows_page
from tidegate.console.pages.sources import Sources
from tidegate.console.pages.sql_page import add_sql
from tidegate.contracts.clock import SYSTEM_CLOCK
from tidegate.contracts.errors import TidegateError, UserError
from tidegate.runtime.configuration.application import Application
from tidegate.runtime.doctor.explanation.finding import key_of
from tidegate.runtime.doctor.status import application_status
from tidegate.state.delta_log.positions import Position


def console(application: Application, logins: Logins, names: Sequence[str], file: str) -> Gate:
    """Return the console as an ASGI application that answers to these host names, and to localhost and IP addresses.

    `file`: the configuration as commands name it; an action is such a command.
    """
    app = FastAPI(title="Tidegate", docs_url=None, redoc_url=None, openapi_url=None)
    app.router.route_class = ReadAgain
    add_login(app, logins)
    sources = Sources(application)
    add_actions(app, sources, logins, file)
    add_sql(app, sources)
    _add_pages(app, sources)
    _add_errors(app)
    return Gate(app, logins, names, lambda request: login_page(request, status=401))


def _add_pages(app: FastAPI, sources: Sources) -> None:
    application = sources.application

    @app.get("/")
    def overview() -> Response:
        status = application_status(application, sources.ends_of(), sources.logs.for_page())
        found = overview_of(application, status, sources.findings(), SYSTEM_CLOCK.now_ms())
        name, incidents = application.application, sources.incidents()
        return page("overview.html", application=name, overview=found, incidents=incidents)

    @app.get("/operators/{name}")
    def operator(name: str, batch: BatchNumber = None) -> Response:
        return operator_page(sources, name, batch)

    @app.get("/operators/{name}/series")
    def series(name: str, batch: BatchNumber = None) -> Response:
        return JSONResponse(series_of(sources, name, batch))

    @app.get("/operators/{name}/at")
    def at_time(name: str, time: str) -> Response:
        return RedirectResponse(f"/operators/{name}?batch={batch_at(sources, name, time)}", 303)

    @app.get("/operators/{name}/key")
    def key(
        name: str, key: str, step: str | None = None, partition: Partition = None, batch: BatchNumber = None
    ) -> Response:
        return key_page(
            sources,
            name,
            sources.rules(name, step),
            KeyQuery(key_of(key, sources.config(name)), step, partition, batch),
        )

    @app.get("/operators/{name}/explain")
    def explain(name: str, at: str) -> Response:
        return explain_page(sources, name, Position.of(at))

    @app.get("/operators/{name}/{what}")
    def browse(
        name: str,
        what: str,
        step: str | None = None,
        partition: Partition = None,
        batch: BatchNumber = None,
        before: str | None = None,
    ) -> Response:
        if what not in KINDS:
            raise UserError("there is no such page", value=what[:100], remedy=f"pages: {', '.join(KINDS)}")
        rules = sources.rules(name, step)
        position = None if before is None else Position.of(before)
        query = rows.Query(kind=KINDS[what], step=step, partition=partition, batch=batch, before=position)
        return rows_page(sources, name, what, rules, query)


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
