"""Questions of a person at three in the morning, answered from the console alone, in four clicks at most."""

from __future__ import annotations

import re
from html import unescape
from pathlib import Path
from typing import NamedTuple

import pytest
from starlette.testclient import TestClient

from tests.console.conftest import Browser
from tests.console.logs import SUPPRESSION, TABLE, Written, application, record
from tests.console.test_pages import shown

PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "console.md"
MOST_CLICKS = 4


class Question(NamedTuple):
    """A question, as the page of the documentation has it; what is clicked, from the overview on; and the answer.

    A click is the text of a link, or a form that is filled in: its address.
    """

    asked: str
    clicks: tuple[str, ...]
    answer: str


QUESTIONS = (
    Question("What is wrong, and what do I do about it?", (), "no driver runs: tidegate run"),
    Question("How far has each operator come?", (), "stream time 2023-11-14 22:14:20"),
    Question("Which partition stands still?", ("limited",), r"Partitions .* 0 4 unknown"),
    Question("What did the last batches do?", ("limited",), "Newest batches .* 3 batch"),
    Question(
        "Does it run with what the file says?", ("limited",), "The file says {time_limit: 1h} : see tidegate plan"
    ),
    Question("Which record came too late, and by how much?", ("limited", "late"), "older than max_lateness .*52s"),
    Question(
        "Who is late?",
        ("SQL", "/sql?query=SELECT key, count(*) AS late FROM limited_late GROUP BY key ORDER BY late DESC"),
        "key late d 1",
    ),
    Question(
        "Why did this key not come out?",
        ("limited", "/operators/limited/key?key=c"),
        "It is held, and has not come out. Stream time is 2023-11-14 22:14:20.* time: stream time has passed",
    ),
    Question(
        "What changed on Tuesday?",
        ("limited", "/operators/limited/at?time=2023-11-14T22:13:21"),
        r"newest batch 1 \(batch\).* until: {time_limit: 10s} The file says {time_limit: 1h}",
    ),
    Question(
        "What does this table hold for readers?",
        ("prices", "versions"),
        r"Partition 0 has 2 versions\..* valid to .* 1 2023-11-14 22:13:20.000 UTC .*2023-11-14 22:13:25.000 UTC",
    ),
    Question("What does it hold now?", ("limited", "held records"), "Partition 0 has 1 held records"),
    Question(
        "What did it hold after an earlier batch?",
        ("limited", "held records", "/operators/limited/held?batch=1&partition=0"),
        "As of batch 1, .* has 2 held records",
    ),
    Question("Why was this record sent?", ("limited", "emissions", "explain"), "cause time: stream time has passed"),
    Question(
        "What happened to this key?", ("limited", "emissions", "time line"), r"released until batch 2|emitted \(time\)"
    ),
    Question(
        "How do I send late records back?",
        ("limited", "Actions", "/operators/limited/act/redrive?kind=late"),
        "tidegate redrive app.yaml limited --kind=late",
    ),
    Question(
        "How many records were late, by cause?",
        ("SQL", "/sql?query=SELECT kind, cause, records FROM limited_late_and_rejected_counts"),
        "late older than max_lateness 1",
    ),
)


@pytest.fixture
def pages(browser: Browser, tmp_path: Path) -> TestClient:
    """An operator that has emitted a and b, holds c, and has counted a record of 8 s as late at 60 s.

    Its file has another time limit since then, and no driver runs. A table has two versions of x.
    """
    limited = {"max_lateness": "30s", **SUPPRESSION}
    given = application(tmp_path, limited=limited, prices=TABLE)
    log = Written(given, "limited")
    log.batch([record(b"a", b"1", 0, 0), record(b"b", b"1", 1, 1)])
    log.batch([record(b"c", b"1", 60, 2)])
    log.batch([record(b"d", b"1", 8, 3)])
    Written(given, "prices").batch([record(b"x", b"1", 0, 0), record(b"x", b"2", 5, 1)])
    return browser(application(tmp_path, limited=limited | {"until": {"time_limit": "1h"}}, prices=TABLE))


@pytest.mark.process
@pytest.mark.parametrize("question", QUESTIONS, ids=lambda question: question.asked)
def test_a_question_is_answered_in_a_few_clicks(pages: TestClient, question: Question) -> None:
    text = pages.get("/").text
    for click in question.clicks:
        address = click if click.startswith("/") else address_of(text, click)
        text = pages.get(address, follow_redirects=True).text
    assert re.search(question.answer, shown(text)), shown(text)
    assert len(question.clicks) <= MOST_CLICKS


@pytest.mark.process
def test_a_time_is_in_utc_unless_it_says_otherwise(pages: TestClient) -> None:
    times = ("2023-11-14T22:13:21", "2023-11-14T23:13:21%2B01:00")
    found = [pages.get(f"/operators/limited/at?time={time}", follow_redirects=False) for time in times]
    assert [answer.headers["location"] for answer in found] == ["/operators/limited?batch=1"] * 2


def address_of(text: str, link: str) -> str:
    """The address of the first link on the page with that text."""
    found = re.search(rf'<a href="([^"]+)"[^>]*>{re.escape(link)}</a>', text)
    assert found is not None, f"no link {link}"
    return unescape(found[1])


@pytest.mark.fast
def test_the_page_of_the_documentation_has_the_questions_with_their_clicks() -> None:
    rows = re.findall(r"^\| (.+\?) \| .+ \| (\d) \|$", PAGE.read_text(), re.MULTILINE)
    assert rows == [(each.asked, str(len(each.clicks))) for each in QUESTIONS]
