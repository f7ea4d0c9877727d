"""The pages in a real Chromium: what scripts add, both colour schemes, narrow and wide, and what axe finds."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, ViewportSize

from tests.console.in_chromium.conftest import opened, served
from tests.console.logs import PIPELINE, SUPPRESSION, TABLE, Written, application, record
from tests.console.test_pages import HOSTILE
from tests.patience import wait_for
from tidegate.runtime.doctor.explanation import recomputation

pytestmark = [pytest.mark.browser, pytest.mark.process]

NARROW, WIDE = ViewportSize(width=390, height=844), ViewportSize(width=1280, height=900)
ADDRESSES = (
    "/",
    "/operators/limited",
    "/operators/limited?batch=2",
    "/operators/limited/held",
    "/operators/limited/held?batch=2",
    "/operators/limited/emissions",
    "/operators/limited/late",
    "/operators/limited/rejected",
    "/operators/limited/key?key=0x61",
    "/operators/limited/explain?at=3.0.0",
    "/operators/table/held",
    "/operators/chain",
    "/operators/chain/held?step=limited",
    "/operators/none",
    "/operators/limited/act",
    "/operators/limited/act/flush",
    "/operators/limited/act/redrive",
    "/operators/limited/act/skip",
    "/operators/limited/plan",
    "/sql",
    "/sql?query=SELECT%20*%20FROM%20limited_log",
    "/sql?query=SELECT%20batch,%20count(*)%20AS%20n%20FROM%20limited_log%20GROUP%20BY%20ALL",
    "/sql?operator=limited&batch=2&query=SELECT%20[key]%20AS%20k,%20{'v':%20value}%20AS%20v%20FROM%20limited_log",
    "/sql?query=DROP%20VIEW%20limited_log",
)


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> Written:
    """The log of an operator that has read hostile records; its application has other kinds of operators, too."""
    given = application(tmp_path_factory.mktemp("console"), limited=SUPPRESSION, table=TABLE, chain=PIPELINE)
    limited = Written(given, "limited")
    limited.batch([record(b"a", value, 0, at) for at, value in enumerate(HOSTILE)])
    limited.batch([record(key, b"v", 0, 100 + at) for at, key in enumerate(HOSTILE)])
    limited.batch([record(b"later", b"v", 60, 200), record(None, b"v", 60, 201)])
    Written(given, "table").batch([record(HOSTILE[0], HOSTILE[3], 0, 0)])
    Written(given, "chain").batch([record(HOSTILE[0], b'{"delay": 1}', 0, 0)])
    return limited


@pytest.fixture(scope="module")
def site(log: Written) -> Iterator[str]:
    """The address of a console that serves the application."""
    with pytest.MonkeyPatch.context() as patch, served(log.application, "app.yaml") as address:
        patch.setattr(recomputation, "PROBE_TIMEOUT_S", 0.1)
        yield address


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("viewport", [NARROW, WIDE], ids=["narrow", "wide"])
def test_every_page_is_whole_and_can_be_used(chromium: Browser, site: str, scheme: str, viewport: ViewportSize) -> None:
    page, problems = opened(chromium, site, color_scheme=scheme, viewport=viewport)
    for address in ADDRESSES:
        page.goto(site + address)
        page.wait_for_load_state("networkidle")
        found = Axe().run(page)
        assert found.violations_count == 0, f"{address}: {found.generate_report()}"
        assert page.evaluate("document.documentElement.scrollWidth") <= viewport["width"], address
    # pages that say what is wrong with a query or a form have the status 400
    assert [each for each in problems if "status of 40" not in each] == []


def test_charts_are_drawn_and_follow_new_batches(chromium: Browser, site: str, log: Written) -> None:
    page, problems = opened(chromium, site)
    page.goto(f"{site}/operators/chain")
    page.wait_for_selector(".uplot canvas")
    assert page.locator(".uplot").count() == 4
    page.goto(f"{site}/operators/limited")
    page.wait_for_selector(".uplot canvas")
    before = log.newest.batch
    log.batch([record(b"new", b"v", 61, 300)])
    page.wait_for_selector(f"th >> text='{before + 1}'", timeout=20_000)
    assert page.locator(".uplot").count() == 4 and problems == []


def test_the_slider_shows_an_earlier_batch_and_its_address_is_a_link(chromium: Browser, site: str) -> None:
    page, problems = opened(chromium, site)
    page.goto(f"{site}/operators/limited/held")
    slider = page.locator(".slider")
    slider.focus()
    slider.evaluate(
        "each => { each.value = 1; each.dispatchEvent(new Event('input')); each.dispatchEvent(new Event('change')); }"
    )
    page.wait_for_selector("text=As of batch 1, committed")
    assert "batch=1" in page.url and page.locator("#batch").input_value() == "1"
    shown = page.locator("table").inner_text()
    page.reload()
    assert page.locator("table").inner_text() == shown and problems == []


def test_times_are_those_of_the_viewer_too(chromium: Browser, site: str) -> None:
    page, _ = opened(chromium, site, timezone_id="Asia/Tokyo", locale="en-GB")
    page.goto(f"{site}/operators/limited")
    moment, local = page.locator("time").first, page.locator(".local").first
    assert moment.inner_text().endswith("UTC") and local.inner_text().endswith("Asia/Tokyo")


def test_a_page_that_is_not_looked_at_asks_for_nothing(chromium: Browser, site: str) -> None:
    page, _ = opened(chromium, site)
    page.goto(f"{site}/operators/limited")
    page.wait_for_load_state("networkidle")
    page.evaluate("Object.defineProperty(document, 'hidden', { get: () => true })")
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    page.wait_for_timeout(6_000)
    assert asked == []


def test_pages_work_without_scripts(chromium: Browser, site: str) -> None:
    page, _ = opened(chromium, site, java_script_enabled=False)
    page.goto(f"{site}/operators/limited/held?batch=1")
    assert page.locator(".slider").is_hidden()
    page.fill("#batch", "2")
    page.click("text=Show")
    assert "batch=2" in page.url


def test_names_of_views_are_completed_and_a_result_is_drawn(chromium: Browser, site: str) -> None:
    page, problems = opened(chromium, site)
    page.goto(f"{site}/sql")
    page.locator("#query").press_sequentially("SELECT batch, count(*) AS n FROM limited_lo")
    page.click("#completions button:text-is('limited_log')")
    page.locator("#query").press_sequentially(" GROUP BY ALL LIMIT 3")
    page.click("text=Run")
    page.wait_for_selector("#drawn canvas", timeout=60_000)  # the query starts a process
    assert "FROM%20limited_log" in page.url.replace("+", "%20")
    assert page.locator(".wide tbody tr").count() == 3
    assert problems == []


def test_an_action_is_confirmed_and_its_output_is_shown(chromium: Browser, site: str) -> None:
    """The file of the console does not exist here, so the command says that."""
    page, problems = opened(chromium, site)
    page.goto(f"{site}/operators/limited/act")
    page.click("button:text-is('compact ...')")
    assert "tidegate compact app.yaml --operator limited" in page.inner_text("main")
    page.click("text=Confirm: compact")
    page.wait_for_url(f"{site}/actions/*")
    wait_for(lambda: "It has failed" in page.inner_text("main"))
    assert "No such file" in page.inner_text("main")
    assert problems == []
