"""A real Chromium, and consoles that it can open."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Thread

import pytest
import uvicorn
from playwright.sync_api import Browser, Page, sync_playwright

from tests.console.conftest import TOKEN
from tests.patience import wait_for
from tidegate.console.access import Logins
from tidegate.console.pages import console
from tidegate.devkit.embedded_broker import free_ports
from tidegate.runtime.configuration.application import Application


@contextmanager
def served(application: Application, file: str) -> Iterator[str]:
    """Serve a console of the application; yield its address. `file`: the configuration as commands name it."""
    [port] = free_ports(1)
    gate = console(application, Logins(lambda _: None, TOKEN, port=port), [], file)
    server = uvicorn.Server(uvicorn.Config(gate, port=port, log_level="warning", lifespan="off"))
    thread = Thread(target=server.run, daemon=True)
    thread.start()
    wait_for(lambda: server.started)
    try:
        yield f"http://127.0.0.1:{port}"
    finally:
        server.should_exit = True
        thread.join()


@pytest.fixture(scope="module")
def chromium() -> Iterator[Browser]:
    with sync_playwright() as playwright:
        program = shutil.which("chromium")
        assert program is not None, "no Chromium: infra/chromium.sh installs it"
        browser = playwright.chromium.launch(executable_path=program, args=["--no-sandbox", "--disable-gpu"])
        yield browser
        browser.close()


def opened(chromium: Browser, site: str, **options: object) -> tuple[Page, list[str]]:
    """A page that has logged in, and the problems that its console reports."""
    page = chromium.new_context(**options).new_page()  # type: ignore[arg-type]
    problems: list[str] = []
    page.on("console", lambda message: problems.append(message.text) if message.type == "error" else None)
    page.on("pageerror", lambda error: problems.append(str(error)))
    page.on("dialog", lambda dialog: problems.append(f"a dialog: {dialog.message}"))
    page.goto(f"{site}/login")
    page.fill("#token", TOKEN)
    page.click("button")
    page.wait_for_url(f"{site}/")
    return page, problems
