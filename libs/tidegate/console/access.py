"""Who is let in: a token that is exchanged for a cookie, and checks of every request before a page sees it.

The defaults assume that other programs on the machine, and any web page in the user's browser, may send requests.
"""

from __future__ import annotations

import hmac
import re
import secrets
from collections.abc import Callable, Container, Sequence
from hashlib import sha256
from hmac import compare_digest
from ipaddress import ip_address
from threading import Lock
from typing import NamedTuple
from urllib.parse import urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from tidegate.contracts.clock import SYSTEM_CLOCK, Clock

LOGIN = "/login"
STATIC = {
    "icon.svg": "image/svg+xml",
    "style.css": "text/css",
    "charts.css": "text/css",
    "charts.js": "text/javascript",
    "console.js": "text/javascript",
}
"""The files that pages load, with their types."""
OPEN_TO_ALL = (LOGIN, *(f"/{name}" for name in STATIC))
"""The paths that are served without a token: the login page, and files that are the same for everybody."""

SHORTEST_TOKEN = 20
"""Fewest characters of a token that the user chooses."""

SESSION_S, MOST_SESSIONS = 12 * 3_600, 64
"""How long a login lasts, and how many there may be at a time; a further one ends the oldest."""

LONGEST_TARGET, LONGEST_BODY = 4_096, 4_096
"""Most bytes of a request's path and query, and of a form."""

_FORMS = re.compile(rf"{LOGIN}|/operators/[^/]+/act/[a-z]+", re.ASCII)
"""The paths to which forms are sent: the login, and actions."""

_HOST = re.compile(r"(\[[0-9a-f:.]+\]|[a-z0-9_.-]+)(:\d{1,5})?", re.ASCII)

HEADERS = {
    "content-security-policy": "default-src 'none'; script-src 'self'; connect-src 'self'; style-src 'self'; "
    "img-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'",
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "permissions-policy": "camera=(), geolocation=(), microphone=()",
    "cache-control": "no-store",
}
"""Headers of every response: nothing is loaded from elsewhere, no script runs that is not a file of the console, and
no other page shows this one."""


class Refusal(NamedTuple):
    """The status of a request that is refused, and why."""

    status: int
    why: str


class Logins:
    """The token, and the logins that were made with it.

    Without a token of the user's own, each token opens one login; `announce` is called with the first one, and with the
    next one as soon as one is used. `cookie`: its name, which has the port because browsers send cookies to all ports.
    """

    def __init__(
        self, announce: Callable[[str], None], token: str | None = None, *, port: int, clock: Clock = SYSTEM_CLOCK
    ) -> None:
        self.cookie = f"tidegate-console-{port}"
        self._announce, self._clock, self._is_fixed = announce, clock, token is not None
        self._token = token or _new_token()
        self._sessions: dict[bytes, float] = {}
        self._secret = secrets.token_bytes(32)
        self._lock = Lock()
        if not self._is_fixed:
            announce(self._token)

    def open(self, token: str) -> str | None:
        """Return the cookie of a new login; None if the token is wrong or was used before."""
        with self._lock:
            if not compare_digest(token.encode(), self._token.encode()):
                return None
            session, now = _new_token(), self._clock.monotonic()
            self._sessions[_digest(session)] = now + SESSION_S
            for oldest in list(self._sessions)[:-MOST_SESSIONS]:
                del self._sessions[oldest]
            if not self._is_fixed:
                self._token = _new_token()
                self._announce(self._token)
            return session

    def knows(self, session: str) -> bool:
        """Return whether the cookie is that of a login that lasts."""
        until = self._sessions.get(_digest(session))
        return until is not None and self._clock.monotonic() < until

    def form_token(self, session: str) -> str:
        """Return what the console's own forms send along in this login, and no other page knows."""
        return hmac.new(self._secret, session.encode(), sha256).hexdigest()


def _new_token() -> str:
    return secrets.token_urlsafe(32)


def _digest(session: str) -> bytes:
    return sha256(session.encode()).digest()


def is_own_host(host: str, names: Container[str]) -> bool:
    """Return whether a `Host` header may be that of the console: an IP address, localhost, or one of the names.

    A web page whose own name was made to point to this machine (DNS rebinding) sends that name.
    """
    if _HOST.fullmatch(host) is None:
        return False
    try:
        name = urlsplit(f"//{host}").hostname or ""
        if name == "localhost" or name in names:
            return True
        ip_address(name)
    except ValueError:
        return False
    return True


def local_path(text: str) -> str:
    """Return the path of a page of the console, with its query; `/` if the text leads elsewhere."""
    is_path = text.startswith("/") and not text.startswith("//")
    return text if is_path and text.isascii() and text.isprintable() and "\\" not in text else "/"


def refusal(method: str, path: str, target_bytes: int, headers: Headers, names: Container[str]) -> Refusal | None:
    """Return why a request is refused whoever sends it; None if it is not.

    `target_bytes`: the length of its path and query as they were sent.
    """
    hosts = headers.getlist("host")
    if len(hosts) != 1 or not is_own_host(hosts[0].lower(), names):
        return Refusal(421, "this host name is not the console's: use the address that the console prints")
    if target_bytes > LONGEST_TARGET:
        return Refusal(414, "the address is too long")
    is_form = method == "POST" and _FORMS.fullmatch(path) is not None
    if method != "GET" and not is_form:
        return Refusal(405, "this address is only read")
    if _body_length(headers) > (LONGEST_BODY if is_form else 0):
        return Refusal(413, "the request is too large")
    if is_form and not _is_own_form(headers, hosts[0]):
        return Refusal(403, "another page has sent this form")
    return None


def _is_own_form(headers: Headers, host: str) -> bool:
    """Return whether a form may come from a page of the console.

    Browsers say so in `sec-fetch-site`. `origin` is what older ones have; it is null where pages send no referrer, as
    those of the console.
    """
    if sites := headers.getlist("sec-fetch-site"):
        return all(site in ("same-origin", "none") for site in sites)
    return all(urlsplit(origin).netloc.lower() == host.lower() for origin in headers.getlist("origin"))


def _body_length(headers: Headers) -> int:
    """Return the length of a request's body; for one without a valid length, more than is allowed."""
    length = headers.get("content-length", "0")
    is_known = "transfer-encoding" not in headers and length.isascii() and length.isdigit()
    return int(length[:10]) if is_known else LONGEST_BODY + 1


class Gate:
    """An ASGI application before that of the pages: it refuses what nobody may ask, and asks for the login.

    `names`: host names of the console. `ask_for_login`: returns the response to a request without a login.
    """

    def __init__(
        self, pages: ASGIApp, logins: Logins, names: Sequence[str], ask_for_login: Callable[[Request], Response]
    ) -> None:
        self._pages, self._logins, self._ask_for_login = pages, logins, ask_for_login
        self._names = frozenset(name.lower() for name in names)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer the request, or let the pages answer it; every response gets HEADERS."""
        if scope["type"] != "http":
            raise ValueError(f"the console answers HTTP alone, not {scope['type']}")

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                MutableHeaders(scope=message).update(HEADERS)
            await send(message)

        answer = self._refused(scope) or self._pages
        await answer(scope, receive, send_with_headers)

    def _refused(self, scope: Scope) -> Response | None:
        request = Request(scope)
        path, target_bytes = scope["path"], len(scope["raw_path"]) + len(scope["query_string"])
        if (found := refusal(request.method, path, target_bytes, request.headers, self._names)) is not None:
            return PlainTextResponse(found.why, found.status)
        if path in OPEN_TO_ALL or self._logins.knows(request.cookies.get(self._logins.cookie, "")):
            return None
        return self._ask_for_login(request)
