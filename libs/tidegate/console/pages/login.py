"""The login, and what the login page looks like."""

from __future__ import annotations

import asyncio
from pathlib import Path
from urllib.parse import parse_qs

from fastapi import FastAPI, Request
from fastapi.responses import FileResponse, Response
from starlette.exceptions import HTTPException

from tidegate.console.access import LOGIN, LONGEST_BODY, SESSION_S, STATIC, Logins, local_path
from tidegate.console.pages.rendering import page

_STATIC = Path(__file__).parents[1] / "static"

CLIENT_TIMEOUT_S = 10.0
"""Time that a client has to send the login form."""


def add_login(app: FastAPI, logins: Logins) -> None:
    """Add the pages that exchange a token for a cookie."""

    for name, media_type in STATIC.items():
        _add_file(app, name, media_type)

    @app.get(LOGIN)
    def login(request: Request, token: str | None = None) -> Response:
        if token is None:
            return login_page(request, status=200)
        return _logged_in(logins, token, "/") or login_page(request, status=403, is_wrong=True)

    @app.post(LOGIN)
    async def login_by_form(request: Request) -> Response:
        form = await form_of(request)
        token, wanted = (form.get(name, "") for name in ("token", "to"))
        return _logged_in(logins, token, local_path(wanted)) or login_page(request, status=403, is_wrong=True)


def _add_file(app: FastAPI, name: str, media_type: str) -> None:
    @app.get(f"/{name}")
    def file() -> Response:
        return FileResponse(_STATIC / name, media_type=media_type)


async def form_of(request: Request) -> dict[str, str]:
    """Return the fields of the form that was sent; of fields with equal names the first one."""
    content = await asyncio.wait_for(_body(request), CLIENT_TIMEOUT_S)
    return {name: values[0] for name, values in parse_qs(content.decode(errors="replace")).items()}


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
    response = page("onward.html", to=to)
    response.set_cookie(logins.cookie, session, max_age=SESSION_S, httponly=True, samesite="strict")
    return response


def login_page(request: Request, *, status: int, is_wrong: bool = False) -> Response:
    """Return the page that asks for the token.

    Browsers send no cookie with a link from another site, so such a request is made again, from this page.
    """
    to = "/" if request.url.path == LOGIN else local_path(f"{request.url.path}?{request.url.query}".rstrip("?"))
    if status == 401 and request.headers.get("sec-fetch-site") == "cross-site":
        return page("onward.html", status, to=to)
    return page("login.html", status, to=to, is_wrong=is_wrong)
