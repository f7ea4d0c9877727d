"""A console with a browser that is logged in."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from starlette.testclient import TestClient

from tidegate.console.access import Logins
from tidegate.console.pages import console
from tidegate.runtime.configuration.application import Application

TOKEN = "a token that the test chooses"
PORT = 8765
FILE = "app.yaml"

Browser = Callable[[Application], TestClient]


@pytest.fixture
def stranger(impatient: None) -> Browser:
    """`stranger(application)`: a client of the application's console that has not logged in."""

    def opened(application: Application) -> TestClient:
        app = console(application, Logins(lambda _: None, TOKEN, port=PORT), ["console.example"], FILE)
        return TestClient(
            app, base_url=f"http://127.0.0.1:{PORT}", follow_redirects=False, raise_server_exceptions=False
        )

    return opened


@pytest.fixture
def browser(stranger: Browser) -> Browser:
    """`browser(application)`: a client that has logged in."""

    def opened(application: Application) -> TestClient:
        client = stranger(application)
        assert client.post("/login", data={"token": TOKEN}).status_code == 200
        return client

    return opened
