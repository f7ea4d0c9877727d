"""Actions of the console: nothing runs before it is confirmed, and what runs is the command that the page shows."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
import yaml
from starlette.testclient import TestClient

from tests.console.conftest import FILE, Browser
from tests.console.logs import SUPPRESSION, Written, application, record
from tests.console.test_pages import shown
from tests.patience import wait_for
from tidegate.console.act.actions import ACTIONS, arguments_of, as_typed
from tidegate.console.act.edited import picture_of, preview_of
from tidegate.console.act.jobs import Jobs
from tidegate.contracts.errors import TidegateError, UserError
from tidegate.runtime.doctor.change_preview import Forecast


class Ran:
    """Stands for the processes: remembers the arguments of the commands."""

    def __init__(self) -> None:
        self.commands: list[list[str]] = []


@pytest.fixture
def ran(monkeypatch: pytest.MonkeyPatch) -> Ran:
    found = Ran()
    start = Jobs.start

    def started(self: Jobs, arguments: list[str]) -> object:
        found.commands.append(arguments)
        return start(self, ["--version"])

    monkeypatch.setattr(Jobs, "start", started)
    return found


@pytest.fixture
def known(browser: Browser, tmp_path: Path) -> TestClient:
    """The pages of an operator that holds three records, of 0 s, 4 s and 8 s."""
    given = application(tmp_path, limited=SUPPRESSION)
    log = Written(given, "limited")
    log.batch([record(b"%d" % at, b"v", 4 * at, at) for at in range(3)])
    return browser(given)


def form_of(client: TestClient, address: str) -> dict[str, str]:
    """The hidden fields of the form on the page."""
    return dict(re.findall(r'type="hidden" name="(\w+)" value="([^"]*)"', client.get(address).text))


@pytest.mark.fast
@pytest.mark.parametrize(
    ("what", "form", "arguments"),
    [
        ("apply", {}, ["apply", FILE, "--operator", "limited"]),
        ("flush", {}, ["flush", FILE, "limited"]),
        ("compact", {}, ["compact", FILE, "--operator", "limited"]),
        ("skip", {"ranges": " 0:1-2  13:4-50 "}, ["skip", FILE, "limited", "0:1-2", "13:4-50"]),
        ("redrive", {"kind": "", "cause": ""}, ["redrive", FILE, "limited"]),
        ("redrive", {"kind": "late", "cause": "a; b"}, ["redrive", FILE, "limited", "--kind=late", "--cause=a; b"]),
    ],
)
def test_an_action_is_a_command(what: str, form: dict[str, str], arguments: list[str]) -> None:
    assert arguments_of(what, FILE, "limited", form) == arguments


@pytest.mark.fast
@pytest.mark.parametrize(
    ("what", "form"),
    [
        ("skip", {}),
        ("skip", {"ranges": "--help"}),
        ("skip", {"ranges": "0:1-2 --json"}),
        ("skip", {"ranges": "0:1-2; rm -rf /"}),
        ("redrive", {"kind": "--again"}),
        ("redrive", {"cause": "a\nb"}),
        ("redrive", {"cause": "x" * 1_001}),
        ("run", {}),
    ],
)
def test_arguments_that_the_command_does_not_take_are_refused(what: str, form: dict[str, str]) -> None:
    with pytest.raises(UserError):
        arguments_of(what, FILE, "limited", form)


@pytest.mark.fast
def test_previews_change_nothing() -> None:
    assert arguments_of("apply", FILE, "limited", {}, is_preview=True)[0] == "plan"
    assert arguments_of("redrive", FILE, "limited", {}, is_preview=True)[-1] == "--dry-run"
    with pytest.raises(UserError, match="no preview"):
        arguments_of("flush", FILE, "limited", {}, is_preview=True)


@pytest.mark.fast
def test_the_command_is_shown_as_a_shell_takes_it() -> None:
    assert as_typed(["redrive", FILE, "limited", "--cause=a; b"]) == "tidegate redrive app.yaml limited '--cause=a; b'"


@pytest.mark.process
def test_an_action_runs_once_it_is_confirmed_and_its_output_is_shown(known: TestClient, ran: Ran) -> None:
    for what in ACTIONS:
        known.get(f"/operators/limited/act/{what}?ranges=0:1-2")
    assert ran.commands == []
    address = "/operators/limited/act/flush"
    assert "tidegate flush app.yaml limited" in shown(known.get(address).text)
    answer = known.post(address, data=form_of(known, address))
    assert answer.status_code == 303 and ran.commands == [["flush", FILE, "limited"]]
    wait_for(lambda: "It has ended." in known.get(answer.headers["location"]).text)
    assert "version" in known.get(answer.headers["location"]).text
    assert "tidegate --version" in known.get("/operators/limited/act").text


@pytest.mark.fast
def test_an_action_without_the_forms_token_or_from_elsewhere_is_refused(known: TestClient, ran: Ran) -> None:
    address = "/operators/limited/act/flush"
    form = form_of(known, address)
    for wrong in ({}, {"form_token": ""}, {"form_token": "0" * 64}, {"form_token": form["form_token"][:-1]}):
        assert known.post(address, data=wrong).status_code == 403
    for headers in ({"sec-fetch-site": "cross-site"}, {"origin": "https://attacker.example"}, {"origin": "null"}):
        assert known.post(address, data=form, headers=headers).status_code == 403
    assert ran.commands == []
    own = {"sec-fetch-site": "same-origin", "origin": "null"}  # as Chromium sends it from a page without referrer
    assert known.post(address, data=form, headers=own).status_code == 303


@pytest.mark.fast
def test_the_token_of_a_form_is_that_of_its_login(known: TestClient, ran: Ran) -> None:
    address = "/operators/limited/act/flush"
    of_first = form_of(known, address)
    known.post("/login", data={"token": "a token that the test chooses"})
    assert known.post(address, data=of_first).status_code == 403
    assert known.post(address, data=form_of(known, address)).status_code == 303
    assert len(ran.commands) == 1


@pytest.mark.process
def test_a_command_that_fails_says_why_and_one_runs_at_a_time() -> None:
    jobs = Jobs()
    job = jobs.start(["flush", "no-such-file.yaml", "limited"])
    with pytest.raises(UserError, match="another action runs"):
        jobs.start(["--version"])
    wait_for(lambda: job.code is not None)
    assert job.code == 2 and "No such file" in job.output
    assert jobs.start(["--version"]).number == 2


@pytest.mark.process
def test_an_action_says_that_the_broker_is_away_and_pages_stay_as_they_are(
    browser: Browser, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    given = application(tmp_path, limited=SUPPRESSION)
    Written(given, "limited").batch([record(b"a", b"v", 0, 0)])
    places = {"lake": "lake", "state": "state", "keep_output": "forever", "control": None, "kafka": given.kafka}
    (tmp_path / FILE).write_text(
        yaml.safe_dump({"application": "app", **places, "operators": {"limited": SUPPRESSION}})
    )
    monkeypatch.chdir(tmp_path)
    client, address = browser(given), "/operators/limited/act/skip?ranges=0:1-2"
    found = client.post("/operators/limited/act/skip", data=form_of(client, address)).headers["location"]
    wait_for(lambda: "It runs." not in client.get(found).text)
    text = shown(client.get(found).text)
    assert "It has failed" in text and "127.0.0.1:1" in text, text
    for page in ("/operators/limited", "/operators/limited/held", "/operators/limited/act", "/sql"):
        assert client.get(page).status_code == 200


@pytest.mark.fast
def test_edited_options_show_what_would_be_released(known: TestClient) -> None:
    """
    held: 0 s, 4 s, 8 s; stream time is 8 s. A time limit of 3 s releases those of 0 s and 4 s.
    """
    options = SUPPRESSION | {"until": {"time_limit": "3s"}}
    answer = known.get("/operators/limited/plan", params={"options": yaml.safe_dump(options)})
    text = shown(answer.text)
    assert "can change while running" in text and "3 held now: 2 released, 0 lost, 1 held after." in text
    assert 'class="released" x="0" y="4" width="400"' in answer.text
    assert "its topics could not be checked" in text


@pytest.mark.fast
@pytest.mark.parametrize(
    ("options", "said"),
    [
        ("kind: suppression\ninput: in\nuntil: {time_limit: -1}", "time_limit"),
        ("kind: [", "not YAML"),
        ("until: {}", "kind"),
        ("kind: stream_table_join\ninput: in\noutput: o\ntable: t\njoiner: os:system", "os:system"),
        ("!!python/object/apply:os.system [x]", "not YAML"),
    ],
)
def test_options_that_are_wrong_are_said_beside_them(known: TestClient, options: str, said: str) -> None:
    answer = known.get("/operators/limited/plan", params={"options": options})
    assert answer.status_code == 400 and said in shown(answer.text)


@pytest.mark.fast
def test_the_picture_has_the_parts_in_proportion() -> None:
    parts = picture_of(Forecast(held=100, released=25, lost=25, held_after=50))
    assert [(part.what, part.x, part.width) for part in parts] == [
        ("released", 0, 150),
        ("lost", 150, 150),
        ("held", 300, 300),
    ]
    assert picture_of(Forecast())[-1].width == 0


@pytest.mark.fast
def test_edited_options_read_no_other_lake(tmp_path: Path, impatient: None) -> None:
    given = application(tmp_path, limited=SUPPRESSION)
    with pytest.raises(TidegateError):
        preview_of(given, "limited", json.dumps(SUPPRESSION | {"lake": "/elsewhere"}))
