"""Requests of commands to the running driver of an operator, exchanged through the lake.

A request is the object `_driver/request.json` below the operator's log, so that a driver finds it by looking at one
key. It names the epoch of the driver that it is for: older drivers leave it alone, newer ones refuse it. Its answer is
an object of its own, `_driver/answers/<id>.json`; the request is deleted after it was answered. A second requester
waits until the key is free. All requests may be carried out twice: one that vanished without an answer is put again.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Literal, NamedTuple

from tidegate.contracts.clock import SYSTEM_CLOCK, Clock
from tidegate.contracts.errors import ConfigurationError, EngineError, TidegateError, Unavailable, UserError
from tidegate.state.lake.port import Lake

Kind = Literal["apply", "compact", "flush", "stop"]

KEY = "_driver/request.json"
ANSWERS = "_driver/answers"
POLL_S = 0.05
"""Pause between two looks for an answer in a folder."""
POLL_REMOTE_S = 0.5
"""The same in an object store."""
KEEP_ANSWERS_MS = 86_400_000
"""Answers that nobody has fetched for so long are deleted by the next driver that starts."""


@dataclass(frozen=True, kw_only=True)
class Request:
    """One request. Its `id` begins with the time at which it was made.

    `epoch`: that of the driver that it is for, as in its lease. `content`: the argument. `until`: up to when the
    requester waits, ms of the wall clock.
    """

    id: str
    kind: Kind
    epoch: int
    until: int
    content: str = ""

    def to_json(self) -> bytes:
        """Return the request as JSON; the inverse of `from_json`."""
        return json.dumps(asdict(self), separators=(",", ":")).encode()

    @classmethod
    def from_json(cls, data: bytes) -> Request:
        """Return the request that `to_json` wrote. Raise ValueError or TypeError for anything else."""
        return cls(**json.loads(data))


class Refusal(NamedTuple):
    """Why a driver has refused a request, as in its answer."""

    problem: str
    value: str | None = None
    remedy: str = ""

    @classmethod
    def of(cls, why: TidegateError) -> Refusal:
        """Return the refusal for that reason."""
        value = None if why.value is None else str(why.value)
        return cls(str(why) if isinstance(why, ConfigurationError) else why.problem, value, why.remedy)


# ---- the driver's side


class Inbox:
    """The requests to one driver. Each method makes requests to the lake.

    `first_epoch`: that of the driver's first claim; all epochs from there to its newest one are its own.
    """

    def __init__(self, lake: Lake, first_epoch: int, clock: Clock = SYSTEM_CLOCK) -> None:
        self._lake, self._first_epoch, self._clock = lake, first_epoch, clock

    def pending(self, epoch: int) -> Request | None:
        """Return the pending request, if there is one for this driver, whose newest epoch is `epoch`.

        Refuse a request that is too late or for an earlier driver. If there is none, this looks at one key.
        """
        data = self._lake.get(KEY)
        if data is None:
            return None
        try:
            request = Request.from_json(data)
        except (ValueError, TypeError):  # of another version: its requester gets no answer, but others do
            self._lake.delete([KEY])
            return None
        # rule: request-of-newer-driver
        if request.epoch > epoch:
            return None
        # rule: request-of-older-driver
        if request.epoch < self._first_epoch:
            self._answer(request, {"ended": "the driver that it was sent to has ended"})
            return None
        late_ms = self._clock.now_ms() - request.until
        # rule: request-expired
        if late_ms > 0:
            shown = f"{late_ms / 1_000:.0f} s late by the driver's clock"
            remedy = "compare the clocks of both machines, then repeat the command"
            self.refuse(request, UserError("the requester no longer waits", value=shown, remedy=remedy))
            return None
        return request

    def done(self, request: Request) -> None:
        """Answer that the request is done."""
        self._answer(request, {})

    def refuse(self, request: Request, why: TidegateError) -> None:
        """Refuse the request; problem, value and remedy are reported to the requester."""
        self._answer(request, {"refused": Refusal.of(why)._asdict()})

    def _answer(self, request: Request, answer: dict[str, object]) -> None:
        # in this order: a request that is gone without an answer is sent again
        self._lake.put(_answer_key(request.id), json.dumps(answer).encode())
        self._lake.delete([KEY])

    def delete_old_answers(self) -> None:
        """Delete answers that nobody has fetched for a day."""
        oldest = f"{ANSWERS}/{self._clock.now_ms() - KEEP_ANSWERS_MS:013d}"
        self._lake.delete([found.key for found in self._lake.list_after(ANSWERS) if found.key < oldest])


_DONE = "done"


def _answer_key(request: str) -> str:
    return f"{ANSWERS}/{request}.json"


# ---- the requester's side


class Requester:
    """Sends requests to the driver of one operator."""

    def __init__(self, lake: Lake, clock: Clock = SYSTEM_CLOCK) -> None:
        self._lake, self._clock = lake, clock

    def new(self, kind: Kind, epoch: int, timeout_s: float, content: str = "") -> Request:
        """Return a request to the driver of that epoch, which is not sent yet."""
        now = self._clock.now_ms()
        return Request(
            id=f"{now:013d}-{kind}-{secrets.token_hex(8)}",
            kind=kind,
            epoch=epoch,
            until=now + int(timeout_s * 1_000),
            content=content,
        )

    def put(self, request: Request) -> bool:
        """Send the request, unless another one is waiting; return whether it was sent. Do not wait for an answer."""
        return self._lake.put_if_absent(KEY, request.to_json())

    def ask(
        self, kind: Kind, epoch: int, timeout_s: float, content: str = "", *, ended: Callable[[], str | None]
    ) -> None:
        """Send a request to the driver of that epoch and wait until it is done.

        `ended` is called while waiting, and returns why the driver cannot answer any more. Raise UserError with the
        driver's reason if it refuses; EngineError if the driver ends or `timeout_s` passes.
        """
        request = self.new(kind, epoch, timeout_s, content)
        deadline = self._clock.monotonic() + timeout_s
        pause_s = POLL_S if self._lake.place.is_local else POLL_REMOTE_S
        try:
            while (over := self._over(request, deadline, ended)) is None:
                self._clock.sleep(pause_s)
        finally:
            self._withdraw(request)
        if over != _DONE:
            raise EngineError(
                f"the driver has not done it: {kind}",
                value=over,
                remedy="see `tidegate status` and the log of the service, then ask again",
            )

    def _over(self, request: Request, deadline: float, ended: Callable[[], str | None]) -> str | None:
        """Return how it has ended; None if it has not, and the request waits in the lake or for its place there."""
        late = self._clock.monotonic() > deadline
        try:
            why = ended()  # before the look for the answer: a driver may answer and then end
            over = self._answered(request)
            if over is None and why is None and self._lake.get(KEY) is None:
                over = self._answered(request)  # it is put before the request is deleted
                if over is None:  # not sent yet, or deleted by a driver that meant another one
                    self.put(request)
        except Unavailable:
            if late:
                raise
            return None
        return over or why or ("the driver did not answer in time" if late else None)

    def _answered(self, request: Request) -> str | None:
        """Return _DONE, or why it was not done; None if there is no answer yet. Raise UserError if it was refused."""
        data = self._lake.get(_answer_key(request.id))
        if data is None:
            return None
        answer = json.loads(data)
        if "refused" not in answer:
            return str(answer.get("ended", _DONE))
        refusal = Refusal(**answer["refused"])
        why = refusal.problem if refusal.value is None else f"{refusal.problem}: {refusal.value}"
        remedy = refusal.remedy or "fix the cause and repeat the request; the driver continues as before"
        raise UserError(f"the driver has refused it: {request.kind}", value=" ".join(why.split()), remedy=remedy)

    def _withdraw(self, request: Request) -> None:
        """Delete the answer, and the request if it is still there."""
        try:
            if self._lake.get(KEY) == request.to_json():
                self._lake.delete([KEY])
            self._lake.delete([_answer_key(request.id)])
        except Unavailable:
            return
