"""The pages of an application whose logs are real and whose broker does not answer."""

from __future__ import annotations

import re
from html import unescape
from html.parser import HTMLParser
from pathlib import Path
from time import monotonic
from urllib.parse import parse_qsl, urlsplit

import pytest
from pydantic import SecretStr
from starlette.testclient import TestClient

from tests.console.conftest import Browser
from tests.console.logs import PIPELINE, SUPPRESSION, TABLE, Written, application, record
from tests.patience import wait_for
from tidegate.control.address import Address
from tidegate.control.database import Database
from tidegate.control.instances import DriverEnd, record_incident
from tidegate.control.ledger import OperatorKey, upsert_operator
from tidegate.control.revisions import prepare
from tidegate.runtime.telemetry.driver_status import DriverStatusFile

pytestmark = pytest.mark.fast

HOSTILE = [
    b"<script>alert(1)</script>",
    b"\"'><img src=x onerror=alert(1)>",
    b"{{ 7 * 7 }}{% raw %}",
    "\u202eexe.txt\u2066".encode(),
    b"\x1b[2J\x00\x07",
    b"\xff\xfe\x80",
    "a\u0301".encode() * 500,
    b"x" * 10**6,
    b"=cmd|' /C calc'!A0",
    b"",
]


class _Tags(HTMLParser):
    """The tags of a page, and how deep they are."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, _attributes: object) -> None:
        self.tags.append(tag)


def table(text: str) -> str:
    """The table of a page of rows."""
    return text[text.index("<table>") : text.index("</table>")]


def shown(text: str) -> str:
    """The text of a page, without tags."""
    return " ".join(unescape(re.sub(r"<[^>]+>", " ", text)).split())


def shape(link: str) -> tuple[str, ...]:
    """What kind of page a link leads to: its path, the names of what its query says, and the step."""
    parts = urlsplit(link)
    said = {f"{name}={value}" if name == "step" else name for name, value in parse_qsl(parts.query)}
    return (parts.path, *sorted(said))


@pytest.fixture
def pages(browser: Browser, tmp_path: Path) -> TestClient:
    """The pages of an operator that has read one hostile record after the other, as keys and as values."""
    given = application(
        tmp_path, limited=SUPPRESSION, table=TABLE, chain=PIPELINE, absent=SUPPRESSION | {"output": "x"}
    )
    limited = Written(given, "limited")
    limited.batch([record(bytes([97 + at]), value, 0, at) for at, value in enumerate(HOSTILE)])
    limited.batch([record(key, b"v", 0, 100 + at) for at, key in enumerate(HOSTILE)])
    limited.batch([record(b"later", b"v", 60, 200), record(None, HOSTILE[0], 60, 201)])
    Written(given, "table").batch([record(HOSTILE[0], HOSTILE[3], 0, 0)])
    chain = Written(given, "chain")
    chain.batch([record(HOSTILE[0], b'{"delay": 1}', 0, 0)])
    chain.flush()
    return browser(given)


ADDRESSES = (
    "/",
    "/operators/limited",
    "/operators/limited/held",
    "/operators/limited/held?batch=2",
    "/operators/limited/emissions",
    "/operators/limited/late",
    "/operators/limited/rejected",
    "/operators/table/held",
    "/operators/chain",
    "/operators/chain/held?step=limited",
    "/operators/absent",
    "/operators/limited?batch=1",
    "/operators/limited/key?key=0x&partition=0",
    f"/operators/limited/key?key=0x{HOSTILE[0].hex()}",
    f"/operators/chain/key?key=0x{HOSTILE[0].hex()}&step=limited",
    "/operators/limited/explain?at=3.0.0",
    "/operators/chain/explain?at=2.0.0",
    "/operators/limited/act",
    "/operators/limited/act/flush",
    "/operators/chain/plan",
)


@pytest.mark.parametrize("address", ADDRESSES)
def test_hostile_keys_and_values_are_text(pages: TestClient, address: str) -> None:
    answer = pages.get(address)
    tags = _Tags(answer.text).tags
    assert answer.status_code == 200
    assert not {"img", "iframe", "style"} & set(tags)
    assert tags.count("script") == answer.text.count('.js" defer></script>') <= 2
    assert not re.search("[\x00-\x08\x0b-\x1f\x7f\u200b-\u200f\u202a-\u202e\u2066-\u2069]", answer.text)
    assert len(answer.text) < 200_000


def test_what_was_held_says_keys_values_and_their_sizes(pages: TestClient) -> None:
    text = pages.get("/operators/limited/held?batch=1").text
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in text
    assert "1,000,000 bytes in all" in text and "{{ 7 * 7 }}{% raw %}" in text
    assert "0xfffe80" in text and "\\u202eexe.txt\\u2066" in text
    assert "Partition 0 has 10 held records." in shown(text)


def test_the_overview_says_first_what_is_wrong_and_then_the_figures(pages: TestClient) -> None:
    text = shown(pages.get("/").text)
    assert text.index("What is wrong") < text.index("limited: no driver") < text.index("Operators")
    assert "no driver runs: tidegate run" in text
    assert "rejected 1" in text and "lag unknown" in text and "newest batch 3 (batch)" in text


def test_a_broker_that_is_away_is_said_and_not_waited_for(pages: TestClient) -> None:
    pages.get("/")
    began = monotonic()
    assert pages.get("/operators/limited").status_code == 200
    assert monotonic() - began < 3
    wait_for(
        lambda: "the topic's offsets are unknown: no broker answers" in shown(pages.get("/operators/limited").text)
    )


def test_a_driver_that_failed_is_a_problem_with_its_reason(browser: Browser, tmp_path: Path) -> None:
    given = application(tmp_path, limited=SUPPRESSION)
    Written(given, "limited").batch([record(b"a", b"v", 0, 0)])
    with (
        pytest.raises(RuntimeError),
        DriverStatusFile(given.state / "app" / "limited").recording_run(),
    ):
        raise RuntimeError("the <disk> is full")
    text = browser(given).get("/").text
    assert "the &lt;disk&gt; is full" in text and "limited: stopped" in shown(text)


def test_the_overview_has_the_incidents_of_the_control_database_newest_first(browser: Browser, tmp_path: Path) -> None:
    address = Address(f"sqlite:///{tmp_path}/control.db")
    database, key = Database(address), OperatorKey("app", "limited")
    prepare(database)
    with database.begin() as connection:
        upsert_operator(connection, key, lake="lake", kind="suppression")
        for at in range(12):
            record_incident(connection, key, DriverEnd(clock_ms=at * 1_000, kind="fenced", reason=f"<b>taken {at}</b>"))
    given = application(tmp_path, limited=SUPPRESSION).model_copy(update={"control": SecretStr(address.url)})
    client = browser(given)
    wait_for(lambda: "&lt;b&gt;taken 11&lt;/b&gt;" in client.get("/").text)
    text = shown(client.get("/").text)
    assert text.index("What is wrong") < text.index("taken 11") < text.index("taken 2") < text.index("Operators")
    assert "1970-01-01 00:00:11.000 UTC limited fenced" in text and "taken 1<" not in text and "taken 0" not in text


def test_an_operator_says_its_batches_its_options_and_what_the_file_says_instead(
    browser: Browser, tmp_path: Path
) -> None:
    given = application(tmp_path, limited=SUPPRESSION)
    log = Written(given, "limited")
    log.batch([record(b"a", b"v", 0, 0)])
    log.compact()
    changed = application(tmp_path, limited=SUPPRESSION | {"until": {"time_limit": "1h"}})
    text = shown(browser(changed).get("/operators/limited").text)
    assert "until: {time_limit: 10s}" in text
    assert "The file says {time_limit: 1h} : see tidegate plan." in text
    assert "2 compaction" in text and "1 batch 2023-11-14 22:13:21.000 UTC 1000ms" in text


def test_the_page_of_a_pipeline_counts_by_step(pages: TestClient) -> None:
    text = shown(pages.get("/operators/chain").text)
    assert "limited 0 1 1 0 0 0 1" in text


def test_an_operator_without_a_log_says_so_and_has_its_configuration(pages: TestClient) -> None:
    text = shown(pages.get("/operators/absent").text)
    assert "no driver" in text and "input: in" in text
    assert pages.get("/operators/absent/held").status_code == 404


@pytest.mark.parametrize(
    "address", ["/operators/nobody", "/operators/nobody/held", "/operators/chain/held?step=nobody"]
)
def test_a_missing_operator_or_step_is_named_with_those_that_there_are(pages: TestClient, address: str) -> None:
    answer = pages.get(address)
    assert answer.status_code == 404
    assert "nobody" in answer.text and "limited" in answer.text


def test_what_a_pipeline_holds_is_shown_by_step(pages: TestClient) -> None:
    assert "?step=limited" in pages.get("/operators/chain/held").text


def test_a_link_shows_the_same_rows_after_a_compaction(browser: Browser, tmp_path: Path) -> None:
    given = application(tmp_path, limited=SUPPRESSION)
    log = Written(given, "limited")
    log.batch([record(b"a", b"v", 0, 0)])
    client = browser(given)
    link = re.search(r'href="([^"]+)">Link to this page', client.get("/operators/limited/held").text)
    assert link is not None
    before = table(client.get(link[1]).text)
    log.batch([record(b"b", b"v", 30, 1)])
    log.compact()
    assert table(client.get(link[1]).text) == before
    assert table(client.get("/operators/limited/held").text) != before


def test_older_rows_are_a_link_away_and_stay_those_of_their_batch(browser: Browser, tmp_path: Path) -> None:
    given = application(tmp_path, limited=SUPPRESSION)
    log = Written(given, "limited")
    log.batch([record(b"%03d" % at, b"v", 0, at) for at in range(60)])
    client = browser(given)
    older = re.search(r'href="([^"]+)" rel="next"', client.get("/operators/limited/held").text)
    assert older is not None
    log.batch([record(b"new", b"v", 1, 60)])
    rows = client.get(older[1].replace("&amp;", "&")).text
    assert len(re.findall(r"<tr>", rows)) == 1 + 10 and "new</bdi>" not in rows


def test_each_emission_leads_to_its_explanation(pages: TestClient) -> None:
    """No broker answers here, so that the batch cannot be recomputed, which the page says."""
    link = re.search(r'href="([^"]+)">explain', pages.get("/operators/limited/emissions").text)
    assert link is not None
    text = shown(pages.get(link[1]).text)
    assert "cause time: stream time has passed the time limit" in text
    assert "until {time_limit: 10s}" in text and "held since batch 2" in text
    assert "recomputed not possible:" in text


def test_an_emission_that_is_not_there_is_said(pages: TestClient) -> None:
    for place in ("9.0.0", "3.7.0", "3.0.99"):
        answer = pages.get(f"/operators/limited/explain?at={place}")
        assert answer.status_code == 404 and "the log has no emission there" in answer.text


def test_an_operator_is_shown_as_it_was_after_a_batch(browser: Browser, tmp_path: Path) -> None:
    given = application(tmp_path, limited=SUPPRESSION)
    log = Written(given, "limited")
    log.batch([record(b"a", b"v", 0, 0)])
    log.batch([record(b"b", b"v", 1, 1), record(b"c", b"v", 2, 2)])
    client = browser(given)
    assert "held 3" in shown(client.get("/operators/limited").text)
    text = shown(client.get("/operators/limited?batch=1").text)
    assert "earlier : the operator as it was after this batch" in text
    assert "held 1" in text and "newest batch 1 (batch)" in text and "no driver" not in text


def test_charts_have_a_number_of_each_line_for_every_batch(pages: TestClient) -> None:
    found = pages.get("/operators/limited/series").json()
    assert found["batch"] == [0, 1, 2, 3] and len(found["time"]) == 4
    lines = {chart["title"]: chart["lines"] for chart in found["charts"]}
    assert lines["Records in"]["read"] == [0, 10, 10, 2]
    assert lines["Held"]["records"][:2] == [0, 10]
    assert set(lines["Emissions by cause"]) == {"time"}
    assert lines["Lateness"]["largest, in seconds"][0] is None
    assert pages.get("/operators/limited/series?batch=1").json()["batch"] == [0, 1]


def test_each_row_leads_to_the_time_line_of_its_key(browser: Browser, tmp_path: Path) -> None:
    """
    batch  1: a at 0 s     2: a at 5 s     3: b at 12 s, which releases a
    """
    given = application(tmp_path, limited=SUPPRESSION)
    log = Written(given, "limited")
    for second, key in ((0, b"a"), (5, b"a"), (12, b"b")):
        log.batch([record(key, b"v", second, len(log.records[0]))])
    client = browser(given)
    link = re.search(r'href="([^"]+key=0x61[^"]*)">time line', client.get("/operators/limited/emissions").text)
    assert link is not None
    text = client.get(link[1].replace("&amp;", "&")).text
    marks = re.findall(r"<title>(batch [^<]+)</title>", text)
    assert marks == [
        "batch 1: replaced until batch 2, offset 0",
        "batch 2: released until batch 3, offset 1",
        "batch 3: emitted (time), offset 1",
    ]
    earlier = client.get(link[1].replace("&amp;", "&") + "&batch=1").text
    assert "batch 1: held, offset 0" in earlier and "emitted (" not in earlier


def test_every_link_leads_to_a_page(browser: Browser, tmp_path: Path, impatient: None) -> None:
    """The pipeline's results are those of a last step, which holds no keys."""
    steps = [*PIPELINE["steps"], {"filter": "delay > 1"}]
    given = application(tmp_path, limited=SUPPRESSION, table=TABLE, chain=PIPELINE | {"steps": steps})
    for name in ("limited", "table", "chain"):
        Written(given, name).batch([record(b"a", b'{"delay": 3}', 0, 0), record(b"b", b'{"delay": 3}', 60, 1)])
    pages, to_visit, seen = browser(given), ["/"], set[tuple[str, ...]]()
    while to_visit:
        link = to_visit.pop(0)
        if shape(link) in seen:
            continue
        seen.add(shape(link))
        answer = pages.get(link)
        assert answer.status_code == 200, link
        found = [unescape(each) for each in re.findall(r'<a [^>]*href="(/[^"#]*)', answer.text)]
        to_visit += [each for each in found if each != "/logout"]
    paths = {path for path, *_ in seen}
    assert {"/operators/chain/emissions", "/operators/chain/held", "/operators/chain/key", "/sql"} <= paths
