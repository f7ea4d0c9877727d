"""Attacks on the console: what a stranger, another web page, or another program on the machine may try."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from socket import create_connection
from threading import Thread
from typing import NamedTuple
from urllib.request import urlopen

import pytest
import uvicorn
from starlette.datastructures import Headers
from starlette.testclient import TestClient

from tests.console.clock import StillClock
from tests.console.conftest import PORT, TOKEN, Browser
from tests.console.logs import SUPPRESSION, application
from tests.patience import wait_for
from tidegate.console import server
from tidegate.console.access import (
    HEADERS,
    LONGEST_BODY,
    LONGEST_TARGET,
    MOST_SESSIONS,
    SESSION_S,
    STATIC,
    Logins,
    is_own_host,
    local_path,
    refusal,
)
from tidegate.console.pages import console
from tidegate.console.server import LONGEST_HEADERS, MOST_CONNECTIONS
from tidegate.devkit.embedded_broker import free_ports

pytestmark = pytest.mark.fast

COOKIE = f"tidegate-console-{PORT}"
PAGES = (
    "/",
    "/operators/limited",
    "/operators/limited/held",
    "/operators/limited/emissions",
    "/operators/none",
    "/none",
    "/operators/limited/act",
    "/operators/limited/act/flush",
    "/operators/limited/plan",
    "/actions/1",
    "/sql",
)


class Attack(NamedTuple):
    """A request that has to be refused, and the status that refuses it."""

    what: str
    status: int
    method: str = "GET"
    path: str = "/"
    headers: dict[str, str] = {}  # noqa: RUF012 -- never changed
    content: bytes | None = None


FORM = {"content-type": "application/x-www-form-urlencoded"}

BY_STRANGERS = [
    *(Attack(f"reading {path} without a login", 401, path=path) for path in PAGES),
    Attack("a cookie that was made up", 401, headers={"cookie": f"{COOKIE}=made-up"}),
    Attack("an empty cookie", 401, headers={"cookie": f"{COOKIE}="}),
    Attack("the token as a cookie", 401, headers={"cookie": f"{COOKIE}={TOKEN.replace(' ', '-')}"}),
    Attack("the token in the address of a page", 401, path=f"/?token={TOKEN}"),
    Attack("the token as a bearer", 401, headers={"authorization": f"Bearer {TOKEN}"}),
    Attack("a path that pretends to be the login", 401, path="/login/../operators/limited"),
    Attack("a path that pretends to be the style", 401, path="/style.css/"),
    Attack("an empty token", 403, "POST", "/login", FORM, b"token="),
    Attack("a wrong token", 403, "POST", "/login", FORM, b"token=wrong"),
    Attack("no token", 403, "POST", "/login", FORM, b""),
    Attack("a token of other characters", 403, "POST", "/login", FORM, "token=\u202e\xff".encode()),
    Attack("a part of the token", 403, "POST", "/login", FORM, f"token={TOKEN[:-1]}".encode()),
    Attack("a wrong token in an address", 403, path="/login?token=wrong"),
    Attack("a login that another page sends", 403, "POST", "/login", FORM | {"sec-fetch-site": "cross-site"}, b""),
    Attack("an action without a login", 401, "POST", "/operators/limited/act/flush", FORM, b"form_token=x"),
    Attack("a login form that is too large", 413, "POST", "/login", FORM, b"token=" + b"x" * LONGEST_BODY),
]
"""What somebody without a login tries."""

BY_PAGES = [
    Attack("DNS rebinding", 421, headers={"host": "attacker.example"}),
    Attack("DNS rebinding with the port", 421, headers={"host": f"attacker.example:{PORT}"}),
    Attack("a name that begins as localhost does", 421, headers={"host": "localhost.attacker.example"}),
    Attack("a name that ends as the console's does", 421, headers={"host": "attacker-console.example"}),
    Attack("a host with a user", 421, headers={"host": "localhost@attacker.example"}),
    Attack("no host", 421, headers={"host": ""}),
    *(Attack(f"the method {method}", 405, method) for method in ("POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE")),
    Attack("a request with a body", 413, content=b"x"),
    Attack("a body of unknown length", 413, headers={"transfer-encoding": "chunked"}),
    Attack("a length that is no number", 413, headers={"content-length": "-1"}),
    Attack("an address that is too long", 414, path="/?" + "x" * LONGEST_TARGET),
    Attack("a path out of the folder", 404, path="/../../etc/passwd"),
    Attack("an encoded path out of the folder", 404, path="/..%2f..%2fetc%2fpasswd"),
    Attack("an operator's name out of the lake", 404, path="/operators/..%2f..%2fetc"),
    Attack("an operator's name with a null", 404, path="/operators/limited%00"),
    Attack("a kind of rows that there is not", 404, path="/operators/limited/state'--"),
    Attack("a step with SQL", 404, path="/operators/limited/held?step=x'%20OR%20'1'='1"),
    Attack("a batch with SQL", 400, path="/operators/limited/held?batch=1;DROP%20TABLE%20x"),
    Attack("a batch that is too large", 400, path=f"/operators/limited/held?batch={2**70}"),
    Attack("a negative partition", 400, path="/operators/limited/held?partition=-1"),
    Attack("a position that is none", 404, path="/operators/limited/emissions?before=1.2"),
    Attack("a time line of no key", 400, path="/operators/limited/key"),
    Attack("a key with SQL", 404, path="/operators/limited/key?key='%20OR%20'1'='1"),
    Attack("a key that is no hexadecimal number", 404, path="/operators/limited/key?key=0xzz"),
    Attack("charts as of a batch with SQL", 400, path="/operators/limited/series?batch=1;DROP%20TABLE%20x"),
    Attack("charts out of the lake", 404, path="/operators/..%2f..%2fetc/series"),
    Attack("a file out of the folder of scripts", 404, path="/..%2fpages.py"),
    Attack("an explanation of nothing", 400, path="/operators/limited/explain"),
    Attack("a place with SQL", 404, path="/operators/limited/explain?at=1.0.0;DROP%20TABLE%20x"),
    Attack("an explanation out of the lake", 404, path="/operators/..%2f..%2fetc/explain?at=1.0.0"),
    Attack("an action by an address", 404, path="/operators/limited/act/flush/confirm"),
    Attack("an action without a token", 403, "POST", "/operators/limited/act/flush", FORM, b""),
    Attack("an action with a wrong token", 403, "POST", "/operators/limited/act/flush", FORM, b"form_token=x"),
    Attack(
        "an action that another page sends",
        403,
        "POST",
        "/operators/limited/act/flush",
        FORM | {"sec-fetch-site": "cross-site"},
        b"",
    ),
    Attack(
        "an action from another port of the machine",
        403,
        "POST",
        "/operators/limited/act/flush",
        FORM | {"origin": f"http://127.0.0.1:{PORT + 1}"},
        b"",
    ),
    Attack("an action by PUT", 405, "PUT", "/operators/limited/act/flush", FORM, b""),
    Attack("an action that is none", 404, path="/operators/limited/act/run"),
    Attack("an action of nobody", 404, path="/operators/nobody/act/flush"),
    Attack("an action with an option", 400, path="/operators/limited/act/skip?ranges=--help"),
    Attack("an action with a command", 400, path="/operators/limited/act/skip?ranges=0:1-2;id"),
    Attack("an action form that is too large", 413, "POST", "/operators/limited/act/flush", FORM, b"x" * 4_097),
    Attack(
        "options with a command", 400, path="/operators/limited/plan?options=!!python/object/apply:os.system%20[id]"
    ),
    Attack("an action that has not run", 404, path="/actions/7"),
    Attack("a file of a result with a path", 404, path="/sql/rows.csv%2f..%2f..%2fetc?query=SELECT%201"),
    Attack("a file of a result of another kind", 404, path="/sql/rows.html?query=SELECT%201"),
    Attack("a query as of a batch with SQL", 400, path="/sql?query=SELECT%201&operator=limited&batch=1;DROP"),
    Attack("a query as of a batch out of the lake", 404, path="/sql?query=SELECT%201&operator=..%2f..%2fetc&batch=1"),
    Attack("a file as of a batch out of the lake", 404, path="/sql/rows.csv?query=SELECT%201&operator=..%2f..&batch=1"),
    Attack("a time with SQL", 404, path="/operators/limited/at?time=2026-01-01'--"),
    Attack("a time out of the lake", 404, path="/operators/..%2f..%2fetc/at?time=2026-01-01"),
    Attack("a time of another page's address", 404, path="/operators/limited/at?time=//attacker.example"),
    Attack("a query that a form sends", 405, "POST", "/sql", FORM, b"query=SELECT+1"),
    Attack("the description of an interface", 404, path="/openapi.json"),
]
"""What is tried with the cookie of a login: by a page with a link, or by a person."""


def without_own_scripts(text: str) -> str:
    """The page without what loads the console's own scripts."""
    for own in ("charts", "console"):
        text = text.replace(f'<script src="/{own}.js" defer></script>', "")
    return text


@pytest.fixture
def strange(stranger: Browser, tmp_path: Path) -> TestClient:
    return stranger(application(tmp_path, limited=SUPPRESSION))


@pytest.fixture
def known(browser: Browser, tmp_path: Path) -> TestClient:
    return browser(application(tmp_path, limited=SUPPRESSION))


@pytest.mark.parametrize("attack", BY_STRANGERS, ids=lambda attack: attack.what)
def test_nothing_is_served_without_a_login(strange: TestClient, attack: Attack) -> None:
    answer = strange.request(attack.method, attack.path, headers=attack.headers, content=attack.content)
    assert answer.status_code == attack.status
    assert "set-cookie" not in answer.headers
    assert "suppression" not in answer.text and "10s" not in answer.text


@pytest.mark.parametrize("attack", BY_PAGES, ids=lambda attack: attack.what)
def test_a_request_that_no_page_makes_is_refused_with_a_login_too(known: TestClient, attack: Attack) -> None:
    answer = known.request(attack.method, attack.path, headers=attack.headers, content=attack.content)
    assert answer.status_code == attack.status
    assert "root:" not in answer.text and "<script" not in without_own_scripts(answer.text)


def test_every_response_has_the_headers_that_keep_browsers_from_doing_more(
    strange: TestClient, known: TestClient
) -> None:
    answers = [
        client.get(path) for client in (strange, known) for path in ("/", "/login", *map("/{}".format, STATIC), "/none")
    ]
    answers += [known.put("/"), strange.get("/", headers={"host": "attacker.example"})]
    for answer in answers:
        assert HEADERS.items() <= dict(answer.headers).items()
    policy = HEADERS["content-security-policy"]
    assert policy.startswith("default-src 'none'") and "unsafe" not in policy
    assert "script-src 'self';" in policy


def test_pages_have_no_scripts_or_styles_in_them_and_load_nothing_from_elsewhere(known: TestClient) -> None:
    for path in (*PAGES, "/login"):
        text = without_own_scripts(known.get(path).text)
        assert not any(
            part in text for part in ("<script", "style=", "<style", "onclick", "javascript:", "http://", "//cdn")
        )


def test_the_cookie_is_for_this_site_alone_and_no_script_reads_it(strange: TestClient) -> None:
    cookie = strange.post("/login", data={"token": TOKEN}).headers["set-cookie"].lower()
    assert "httponly" in cookie and "samesite=strict" in cookie and f"max-age={SESSION_S}" in cookie
    assert TOKEN.lower() not in cookie


def test_a_login_leads_to_the_page_that_was_wanted_and_never_elsewhere(strange: TestClient) -> None:
    wanted = "/operators/limited/held?batch=1"
    assert 'value="/operators/limited/held?batch=1"' in strange.get(wanted).text
    assert f"url={wanted}" in strange.post("/login", data={"token": TOKEN, "to": wanted}).text
    assert 'url=/"' in strange.post("/login", data={"token": TOKEN, "to": "https://attacker.example"}).text


@pytest.mark.parametrize(
    "elsewhere",
    ["", "//attacker.example", "https://attacker.example", "/\\attacker.example", "x", "/\r\nx: y", "/\u202e"],
)
def test_only_a_path_of_the_console_is_led_to(elsewhere: str) -> None:
    assert local_path(elsewhere) == "/"
    assert local_path("/operators/x?batch=1") == "/operators/x?batch=1"


def test_a_link_from_another_site_is_followed_again_from_a_page_of_the_console(strange: TestClient) -> None:
    """Browsers send no strict cookie with the first request; the second one comes from the console's own page."""
    first = strange.get("/operators/limited?x=1", headers={"sec-fetch-site": "cross-site"})
    assert first.status_code == 401 and "url=/operators/limited?x=1" in first.text
    second = strange.get("/operators/limited?x=1", headers={"sec-fetch-site": "same-origin"})
    assert second.status_code == 401 and "http-equiv" not in second.text


def test_a_token_opens_one_login_and_the_next_one_is_announced() -> None:
    announced: list[str] = []
    logins = Logins(announced.append, port=PORT)
    session = logins.open(announced[0])
    assert session is not None and logins.knows(session)
    assert logins.open(announced[0]) is None
    assert len(announced) == 2 and logins.open(announced[1]) not in (None, session)


def test_a_token_of_the_user_opens_many_logins_of_which_the_newest_last() -> None:
    logins = Logins(lambda _: pytest.fail("it is known to the user"), TOKEN, port=PORT)
    sessions = [logins.open(TOKEN) or "" for _ in range(MOST_SESSIONS + 1)]
    assert [logins.knows(session) for session in sessions] == [False] + [True] * MOST_SESSIONS


def test_a_login_ends_after_its_time() -> None:
    clock, opened = StillClock(), StillClock.now
    logins = Logins(lambda _: None, TOKEN, port=PORT, clock=clock)
    session = logins.open(TOKEN) or ""
    clock.now = opened + SESSION_S - 1.0
    assert logins.knows(session)
    clock.now = opened + SESSION_S + 1.0
    assert not logins.knows(session)


@pytest.mark.parametrize(
    ("host", "is_own"),
    [
        ("127.0.0.1:8765", True),
        ("localhost", True),
        ("localhost:1", True),
        ("[::1]:8765", True),
        ("192.168.1.7", True),
        ("console.example", True),
        ("console.example.", False),
        ("[::1", False),
        ("localhost:123456", False),
        ("127.0.0.1.attacker.example", False),
        ("a b", False),
    ],
)
def test_the_console_answers_to_addresses_and_its_own_names(host: str, is_own: bool) -> None:
    assert is_own_host(host, {"console.example"}) == is_own


def test_two_hosts_in_one_request_are_refused() -> None:
    headers = Headers(raw=[(b"host", b"localhost"), (b"host", b"attacker.example")])
    found = refusal("GET", "/", 1, headers, ())
    assert found is not None and found.status == 421


@pytest.fixture
def listening(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[int]:
    """The port of a console that listens, and waits half a second for a request."""
    monkeypatch.setattr(server, "REQUEST_S", 0.5)
    [port] = free_ports(1)
    gate = console(application(tmp_path, limited=SUPPRESSION), Logins(lambda _: None, TOKEN, port=port), [], "app.yaml")
    listener = uvicorn.Server(server.config_of(gate, port=port))
    thread = Thread(target=listener.run, daemon=True)
    thread.start()
    wait_for(lambda: listener.started)
    yield port
    listener.should_exit = True
    thread.join()


@pytest.mark.parametrize(
    "begun",
    [
        b"",
        b"GET / HTTP/1.1\r\nHost: loc",
        b"POST /login HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9\r\n\r\ntok",
        b"GET /icon.svg HTTP/1.1\r\nHost: localhost\r\n\r\nGET / HT",
    ],
    ids=["no request", "half of a request", "half of a form", "half of a second request"],
)
def test_slow_requests_are_ended_and_keep_nobody_out(listening: int, begun: bytes) -> None:
    with ExitStack() as opened:
        slow = [opened.enter_context(create_connection(("127.0.0.1", listening))) for _ in range(MOST_CONNECTIONS)]
        for each in slow:
            each.settimeout(30)
            each.sendall(begun)
        for each in slow:
            while each.recv(65_536):
                pass
    with urlopen(f"http://127.0.0.1:{listening}/icon.svg") as answer:
        assert answer.status == 200


def test_a_request_with_too_long_headers_is_refused(listening: int) -> None:
    with create_connection(("127.0.0.1", listening)) as connection:
        connection.settimeout(30)
        connection.sendall(b"GET / HTTP/1.1\r\nHost: localhost\r\nX: " + b"x" * 2 * LONGEST_HEADERS)
        assert connection.recv(65_536).startswith(b"HTTP/1.1 400")
