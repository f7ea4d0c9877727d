"""Every page of the running demo, as whoever follows the README sees it, and an action on it."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from typing import NamedTuple

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, Page

from tests.console.in_chromium.conftest import opened, served
from tests.console.in_chromium.test_pages import NARROW, WIDE
from tests.console.test_pages import shape
from tests.docs.demo import demo_of, target
from tests.patience import PATIENCE_S, wait_for
from tidegate.runtime.configuration.application import Application

pytestmark = [pytest.mark.browser, pytest.mark.process, pytest.mark.timeout(1_800)]

DAYS = 3


class Site(NamedTuple):
    """A console of the demo, whose service runs."""

    address: str
    application: Application


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    home = tmp_path_factory.mktemp("demo")
    with demo_of(home, DAYS) as application, (home / "run.log").open("w") as said:
        command = [sys.executable, "-m", "tidegate.cli.main", "run", target(home)]
        with subprocess.Popen(command, stdout=said, stderr=subprocess.STDOUT) as service:
            ready = re.compile(r"^\w+: ready$", re.MULTILINE)
            wait_for(lambda: len(ready.findall((home / "run.log").read_text())) == len(application.operators))
            with served(application, target(home)) as address:
                yield Site(address, application)
            service.terminate()


def links(page: Page, site: str) -> list[str]:
    """Where the links of the page lead within the console."""
    found: list[str] = page.eval_on_selector_all("a[href]", "all => all.map(each => each.href)")
    return [each.partition("#")[0] for each in found if each.startswith(f"{site}/") and "/logout" not in each]


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("viewport", [NARROW, WIDE], ids=["narrow", "wide"])
def test_every_kind_of_page_that_links_lead_to_is_whole(chromium: Browser, site: Site, scheme: str, viewport) -> None:
    page, problems = opened(chromium, site.address, color_scheme=scheme, viewport=viewport)
    to_visit, seen = [f"{site.address}/"], set[tuple[str, ...]]()
    while to_visit:
        link = to_visit.pop(0)
        if shape(link) in seen:
            continue
        seen.add(shape(link))
        answer = page.goto(link)
        assert answer is not None and answer.ok, link
        page.wait_for_load_state("networkidle")
        found = Axe().run(page)
        assert found.violations_count == 0, f"{link}: {found.generate_report()}"
        assert page.evaluate("document.documentElement.scrollWidth") <= viewport["width"], link
        to_visit += links(page, site.address)
    assert problems == []
    paths = {path for path, *_ in seen}
    assert {f"/operators/{name}" for name in site.application.operators} <= paths
    assert {"explain", "key", "act", "plan", "held", "emissions"} <= {path.rpartition("/")[2] for path in paths}


def test_an_action_reaches_the_service_of_the_demo(chromium: Browser, site: Site) -> None:
    name = next(name for name, config in site.application.operators.items() if config.kind == "suppression")
    page, problems = opened(chromium, site.address)
    page.goto(f"{site.address}/operators/{name}/act/compact")
    page.click("button:has-text('Confirm: compact')")
    page.wait_for_url(f"{site.address}/actions/*")
    page.wait_for_selector("[role=status]:not(:has-text('It runs.'))", timeout=PATIENCE_S * 1_000)
    assert "It has ended." in page.inner_text("main")
    assert problems == []
