"""Requests that commands send to a running driver through the lake, and their answers."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from threading import Event, Thread
from time import sleep

import pytest

from tidegate.contracts.clock import SYSTEM_CLOCK
from tidegate.contracts.errors import ConfigurationError, EngineError, Problem, TidegateError, Unavailable, UserError
from tidegate.state.driver_requests import ANSWERS, KEEP_ANSWERS_MS, KEY, Inbox, Kind, Request, Requester
from tidegate.state.lake.opening import open_lake
from tidegate.state.lake.place import Place
from tidegate.state.lake.port import Lake

pytestmark = pytest.mark.fast

EPOCH = 5
PATIENCE_S = 30.0


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    return open_lake(Place.of(tmp_path))


def alive() -> None:
    """The driver can still answer."""
    return


def ask(lake: Lake, kind: Kind = "flush", content: str = "", timeout_s: float = PATIENCE_S) -> None:
    Requester(lake).ask(kind, EPOCH, timeout_s, content, ended=alive)


def outcome(lake: Lake, kind: Kind, content: str) -> str:
    """What one requester is told."""
    try:
        ask(lake, kind, content)
    except UserError as error:
        return str(error.value)
    return "done"


def left(lake: Lake) -> list[str]:
    return [found.key for found in lake.list_after("_driver")]


@contextmanager
def answering(lake: Lake, answer: Callable[[Inbox, Request], None] = Inbox.done) -> Iterator[list[str]]:
    """A driver that answers each request after a moment; gives what was said with each, in order."""
    stop, said, inbox = Event(), list[str](), Inbox(lake, EPOCH)

    def drive() -> None:
        while not stop.is_set():
            if (request := inbox.pending(EPOCH)) is not None:
                said.append(request.content)
                answer(inbox, request)
            sleep(0.01)

    thread = Thread(target=drive)
    thread.start()
    try:
        yield said
    finally:
        stop.set()
        thread.join()


def test_a_request_waits_until_the_driver_has_carried_it_out(lake: Lake) -> None:
    with answering(lake) as said:
        assert outcome(lake, "flush", "all") == "done"
    assert (said, left(lake)) == (["all"], [])


def test_each_of_several_requesters_gets_its_own_answer(lake: Lake) -> None:
    def answer(inbox: Inbox, request: Request) -> None:
        if int(request.content) % 2:
            inbox.refuse(request, UserError(f"not {request.content}"))
        else:
            inbox.done(request)

    with answering(lake, answer) as said, ThreadPoolExecutor(4) as requesters:
        found = requesters.map(lambda number: outcome(lake, "apply", str(number)), range(8))
        assert list(found) == ["done" if number % 2 == 0 else f"not {number}" for number in range(8)]
    assert (sorted(said), left(lake)) == ([str(number) for number in range(8)], [])


NOWHERE = UserError("the topic does not exist", value="nowhere", remedy="create it")


def test_a_refusal_reaches_the_requester_with_problem_value_and_remedy(lake: Lake) -> None:
    with answering(lake, lambda inbox, request: inbox.refuse(request, NOWHERE)):
        with pytest.raises(UserError, match="refused it: apply") as refused:
            ask(lake, "apply")
        assert (refused.value.value, refused.value.remedy) == ("the topic does not exist: nowhere", "create it")
    assert left(lake) == []


def test_all_problems_of_a_refused_configuration_reach_the_requester(lake: Lake) -> None:
    problem = Problem(where="operators.a.grace", value="-1", cause="negative", remedy="write 0")
    with answering(lake, lambda inbox, request: inbox.refuse(request, ConfigurationError([problem]))):
        with pytest.raises(UserError) as refused:
            ask(lake, "apply")
        assert "operators.a.grace: negative" in str(refused.value.value)
        assert refused.value.remedy.startswith("fix the cause and repeat the request")


def test_a_request_to_a_driver_that_has_ended_is_withdrawn_with_an_error(lake: Lake) -> None:
    with pytest.raises(EngineError, match="has not done it: compact") as failed:
        Requester(lake).ask("compact", EPOCH, PATIENCE_S, ended=lambda: "the driver has ended: process 7 on head")
    assert failed.value.value == "the driver has ended: process 7 on head"
    assert left(lake) == []


def test_the_answer_of_a_driver_that_ended_right_after_it_counts(lake: Lake) -> None:
    """A driver that was asked to stop answers, then deletes its lease."""
    inbox = Inbox(lake, EPOCH)

    def ended() -> str | None:
        if (request := inbox.pending(EPOCH)) is None:
            return None
        inbox.done(request)
        return "the driver has ended"

    Requester(lake).ask("stop", EPOCH, PATIENCE_S, ended=ended)
    assert left(lake) == []


def test_a_request_without_an_answer_in_time_is_withdrawn_with_an_error(lake: Lake) -> None:
    with pytest.raises(EngineError, match="has not done it: flush") as failed:
        ask(lake, timeout_s=0.05)
    assert failed.value.value == "the driver did not answer in time"
    assert left(lake) == []


def waiting(lake: Lake, **changed: object) -> Request:
    """A request that waits in the lake."""
    requester = Requester(lake)
    request = replace(requester.new("flush", EPOCH, PATIENCE_S), **changed)  # type: ignore[arg-type]
    assert requester.put(request)
    return request


def test_a_driver_refuses_what_was_sent_to_an_earlier_one(lake: Lake) -> None:
    request = waiting(lake)
    assert Inbox(lake, EPOCH + 1).pending(EPOCH + 2) is None
    assert lake.get(f"{ANSWERS}/{request.id}.json") == b'{"ended": "the driver that it was sent to has ended"}'
    assert lake.get(KEY) is None


def test_a_requester_whose_driver_was_followed_by_another_gets_an_error(lake: Lake) -> None:
    successor, stop = Inbox(lake, EPOCH + 1), Event()

    def drive() -> None:
        while not stop.wait(0.01):
            assert successor.pending(EPOCH + 1) is None

    thread = Thread(target=drive)
    thread.start()
    try:
        with pytest.raises(EngineError, match="has not done it: flush") as failed:
            ask(lake)
    finally:
        stop.set()
        thread.join()
    assert failed.value.value == "the driver that it was sent to has ended"


def test_a_driver_carries_out_what_was_sent_to_any_of_its_own_epochs(lake: Lake) -> None:
    """It claims anew whenever an outcome is in doubt, and with a changed configuration."""
    request = waiting(lake)
    assert Inbox(lake, EPOCH - 1).pending(EPOCH + 1) == request


def test_a_fenced_driver_leaves_what_was_sent_to_its_successor(lake: Lake) -> None:
    waiting(lake)
    assert Inbox(lake, EPOCH - 2).pending(EPOCH - 1) is None
    assert lake.get(KEY) is not None


def test_a_request_that_is_too_late_is_refused(lake: Lake) -> None:
    request = waiting(lake, until=SYSTEM_CLOCK.now_ms() - 7_000)
    assert Inbox(lake, EPOCH).pending(EPOCH) is None
    answer = lake.get(f"{ANSWERS}/{request.id}.json")
    assert answer is not None and b"the requester no longer waits" in answer
    assert lake.get(KEY) is None


def test_a_request_that_cannot_be_read_is_deleted(lake: Lake) -> None:
    lake.put_if_absent(KEY, b'{"id": 1}')
    assert Inbox(lake, EPOCH).pending(EPOCH) is None
    assert lake.get(KEY) is None


def test_a_request_that_vanished_without_an_answer_is_sent_again(lake: Lake) -> None:
    """A driver that was frozen while it answered another request deletes this one, which it has not seen."""
    vanished = []

    def ended() -> None:
        if not vanished and lake.get(KEY) is not None:
            vanished.append(lake.get(KEY))
            lake.delete([KEY])

    def answer(inbox: Inbox, request: Request) -> None:
        if vanished:
            inbox.done(request)

    with answering(lake, answer):
        Requester(lake).ask("flush", EPOCH, PATIENCE_S, ended=ended)
    assert vanished and left(lake) == []


def test_an_answer_to_a_withdrawn_request_is_not_an_error_and_is_deleted_a_day_later(lake: Lake) -> None:
    inbox = Inbox(lake, EPOCH)
    inbox.done(Requester(lake).new("flush", EPOCH, PATIENCE_S))
    inbox.delete_old_answers()
    assert len(left(lake)) == 1
    old = Requester(lake).new("flush", EPOCH, PATIENCE_S)
    inbox.done(replace(old, id=f"{SYSTEM_CLOCK.now_ms() - KEEP_ANSWERS_MS - 1:013d}-flush-old"))
    inbox.delete_old_answers()
    assert len(left(lake)) == 1


class Away:
    """A lake that does not answer some times."""

    def __init__(self, lake: Lake, times: int) -> None:
        self._lake, self.times, self.place = lake, times, lake.place

    def __getattr__(self, name: str) -> object:
        if self.times:
            self.times -= 1
            raise Unavailable("the lake does not answer")
        return getattr(self._lake, name)


def test_a_requester_waits_while_the_lake_does_not_answer(lake: Lake) -> None:
    with answering(lake):
        ask(Away(lake, 3))  # type: ignore[arg-type]
    with pytest.raises(TidegateError):
        ask(Away(lake, 1_000_000), timeout_s=0.2)  # type: ignore[arg-type]
