"""The pages of the console and their addresses."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any
from urllib.parse import parse_qs, urlencode

from fastapi import FastAPI, Query, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import FileResponse, HTMLResponse, Response
from jinja2 import Environment, PackageLoader, StrictUndefined
from starlette.exceptions import HTTPException

from tidegate.console import rows, texts
from tidegate.console.access import LOGIN, LONGEST_BODY, SESSION_S, STYLE, Gate, Logins, local_path
from tidegate.console.findings import findings
from tidegate.console.latest import Latest
from tidegate.console.operator_page import history_of, without_log
from tidegate.console.overview import overview_of, problems_of, summary_of
from tidegate.console.tables import cells_of
from tidegate.contracts.clock import SYSTEM_CLOCK
from tidegate.contracts.config import OperatorConfig, OperatorRules
from tidegate.contracts.errors import TidegateError, UserError
from tidegate.contracts.log_schema import Kind as RowKind
from tidegate.operators.registry import kind_of
from tidegate.runtime.configuration.application import Application
from tidegate.runtime.doctor.findings import Finding
from tidegate.runtime.doctor.status import EndsOf, TopicEnds, application_status, from_broker, operator_status

CLIENT_TIMEOUT_S = 10.0
"""Time that a client has to send the login form."""

_NO_ANSWER = TopicEnds(error="the broker has not answered yet: lag is not known")
_KINDS: dict[str, RowKind] = {"held": "state", "emissions": "emission", "late": "late", "rejected": "rejected"}
"""Kinds of rows that a page shows, by the last part of its path."""

_TEMPLATES = Environment(
    loader=PackageLoader("tidegate.console"), autoescape=True, undefined=StrictUndefined, trim_blocks=True
)
_TEMPLATES.filters |= {"time": texts.time_text, "age": texts.age_text, "number": texts.number_text}
_TEMPLATES.filters |= {"visible": texts.visible}


def console(application: Application, logins: Logins, names: Sequence[str]) -> Gate:
    """Return the console as an ASGI application that answers to these host names, and to localhost and IP addresses."""
    app = FastAPI(title="Tidegate", docs_url=None, redoc_url=None, openapi_url=None)
    _add_login(app, logins)
    _add_pages(app, _Sources(application))
    _add_errors(app)
    return Gate(app, logins, names, lambda request: _login_page(request, status=401))


class _Sources:
    """Where the pages get what they show: the logs at each request, all that may be slow from the background."""

    def __init__(self, application: Application) -> None:
        self.application = application
        self._ends = Latest[dict[str, TopicEnds]](self._ask_broker, {})
        self._findings = Latest[list[Finding]](lambda: findings(application), [])

    def config(self, name: str) -> OperatorConfig:
        """Return the configuration of an operator. Raise UserError if the application has none of that name."""
        if name not in self.application.operators:
            known = ", ".join(self.application.operators) or "none"
            raise UserError("there is no such operator", value=name[:100], remedy=f"the file has: {known}")
        return self.application.operators[name]

    def rules(self, name: str, step: str | None) -> OperatorRules:
        """Return the rules of an operator, or of its step. Raise UserError if it has no such step."""
        config = self.config(name)
        if step is None:
            return config
        steps = config.operators
        if step not in steps:
            raise UserError("there is no such step", value=step[:100], remedy=f"steps: {', '.join(steps) or 'none'}")
        return steps[step]

    def ends_of(self) -> EndsOf:
        """Return a function that says what is known of a topic without asking the broker."""
        known = self._ends.get()
        return lambda topic: known.get(topic, _NO_ANSWER)

    def findings(self) -> list[Finding]:
        """Return the latest findings."""
        return self._findings.get()

    def _ask_broker(self) -> dict[str, TopicEnds]:
        ends_of = from_broker(self.application)
        return {topic: ends_of(topic) for topic in {config.input for config in self.application.operators.values()}}


def _add_login(app: FastAPI, logins: Logins) -> None:
    @app.get(STYLE)
    def style() -> Response:
        return FileResponse(Path(__file__).parent / "style.css", media_type="text/css")

    @app.get(LOGIN)
    def login(request: Request, token: str | None = None) -> Response:
        if token is None:
            return _login_page(request, status=200)
        return _logged_in(logins, token, "/") or _login_page(request, status=403, is_wrong=True)

    @app.post(LOGIN)
    async def login_by_form(request: Request) -> Response:
        form = parse_qs((await asyncio.wait_for(_body(request), CLIENT_TIMEOUT_S)).decode(errors="replace"))
        token, wanted = (form.get(name, [""])[0] for name in ("token", "to"))
        return _logged_in(logins, token, local_path(wanted)) or _login_page(request, status=403, is_wrong=True)


async def _body(request: Request) -> bytes:
    content = b""
    async for part in request.stream():
        content += part
        if len(content) > LONGEST_BODY:
            raise HTTPException(413)
    return content


def _logged_in(logins: Logins, token: str, to: str) -> Response | None:
    """Return the page that leads on, with the cookie; None if the token is wrong.

    A redirect would not do: if the link was followed from another site, browsers would not send the cookie with it.
    """
    session = logins.open(token)
    if session is None:
        return None
    response = _page("onward.html", to=to)
    response.set_cookie(logins.cookie, session, max_age=SESSION_S, httponly=True, samesite="strict")
    return response


def _login_page(request: Request, *, status: int, is_wrong: bool = False) -> Response:
    """Return the page that asks for the token.

    Browsers send no cookie with a link from another site, so such a request is made again, from this page.
    """
    to = "/" if request.url.path == LOGIN else local_path(f"{request.url.path}?{request.url.query}".rstrip("?"))
    if status == 401 and request.headers.get("sec-fetch-site") == "cross-site":
        return _page("onward.html", status, to=to)
    return _page("login.html", status, to=to, is_wrong=is_wrong)


def _add_pages(app: FastAPI, sources: _Sources) -> None:
    application = sources.application

    @app.get("/")
    def overview() -> Response:
        status = application_status(application, sources.ends_of())
        found = overview_of(application, status, sources.findings(), SYSTEM_CLOCK.now_ms())
        return _page("overview.html", application=application.application, overview=found)

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
            "holds": _content_of(config),
        }
        return _page("operator.html", summary=summary_of(name, config, status, SYSTEM_CLOCK.now_ms()), **facts)

    @app.get("/operators/{name}/{what}")
    def browse(
        name: str,
        what: str,
        step: str | None = None,
        partition: Annotated[int | None, Query(ge=0, lt=2**31)] = None,
        batch: Annotated[int | None, Query(ge=0, lt=2**62)] = None,
        before: str | None = None,
    ) -> Response:
        if what not in _KINDS:
            raise UserError("there is no such page", value=what[:100], remedy=f"pages: {', '.join(_KINDS)}")
        rules = sources.rules(name, step)
        position = None if before is None else rows.Position.of(before)
        query = rows.Query(kind=_KINDS[what], step=step, partition=partition, batch=batch, before=position)
        return _browse_page(application, name, what, rules, query)


def _content_of(config: OperatorConfig) -> list[tuple[str | None, str]]:
    """Return what an operator holds in words, by step; the step is None for an operator that is a single step."""
    steps = config.operators
    return [(name, kind_of(rules.kind).holds) for name, rules in steps.items()] or [(None, kind_of(config.kind).holds)]


def _browse_page(application: Application, name: str, what: str, rules: OperatorRules, query: rows.Query) -> Response:
    config, content = application.operators[name], _content_of(application.operators[name])
    if query.kind == "state" and query.step is None and content[0][0] is not None:
        raise UserError("a pipeline holds records by step", value=name, remedy=f"add ?step={content[0][0]}")
    page = rows.read_page(application.lake / name, rules, query)
    asked = {"step": query.step, "batch": query.batch, "partition": query.partition}
    fixed, first_step = asked | {"batch": page.newest.batch}, {} if query.step else {"step": content[0][0]}
    return _page(
        "browse.html",
        name=name,
        what=what,
        holds=kind_of(rules.kind).holds,
        page=page,
        table=cells_of(page.rows, config, rules),
        query=query,
        older=None if page.older is None else _address(name, what, fixed | {"before": page.older}),
        here=_address(name, what, fixed | {"before": query.before}),
        step_links=[(step, _address(name, what, asked | {"step": step})) for step, _ in content if step is not None],
        kind_links=[(each, _address(name, each, asked | (first_step if each == "held" else {}))) for each in _KINDS],
    )


def _address(name: str, what: str, parts: dict[str, Any]) -> str:
    """Return the address of a page of rows."""
    query = urlencode({part: value for part, value in parts.items() if value is not None})
    return f"/operators/{name}/{what}" + (f"?{query}" if query else "")


def _add_errors(app: FastAPI) -> None:
    @app.exception_handler(TidegateError)
    def tidegate_error(_request: Request, error: Exception) -> Response:
        assert isinstance(error, TidegateError)
        return _error_page(404 if isinstance(error, UserError) else 503, error)

    @app.exception_handler(HTTPException)
    def no_page(_request: Request, error: Exception) -> Response:
        assert isinstance(error, HTTPException)
        return _error_page(error.status_code, UserError("there is no such page", remedy="begin at the overview"))

    @app.exception_handler(RequestValidationError)
    def wrong_query(_request: Request, _error: Exception) -> Response:
        remedy = "batch and partition are whole numbers, from 0"
        return _error_page(400, UserError("the address has a wrong value", remedy=remedy))


def _error_page(status: int, error: TidegateError) -> HTMLResponse:
    value = "" if error.value is None else texts.visible(str(error.value))
    return _page("problem.html", status, problem=error.problem, value=value, remedy=error.remedy)


def _page(template: str, status: int = 200, **content: Any) -> HTMLResponse:
    return HTMLResponse(_TEMPLATES.get_template(template).render(**content), status)
