"""Trying again until a deadline, and what Kafka's error codes mean for that."""

from __future__ import annotations

import time
from collections.abc import Iterator

from kafka.errors import AuthorizationError, for_code

from tidegate.contracts.errors import EngineError, TidegateError, Unavailable, UserError

FIRST_PAUSE_S = 0.001
LONGEST_PAUSE_S = 0.1


class Deadline:
    """A point in time, by the monotonic clock, `seconds` from now."""

    def __init__(self, seconds: float) -> None:
        self._at = time.monotonic() + seconds

    @property
    def remaining_s(self) -> float:
        """Seconds left; 0 when it has passed."""
        return max(0.0, self._at - time.monotonic())

    def attempts(self) -> Iterator[int]:
        """0, 1, 2, ... with a pause in between that doubles, until the deadline has passed; at least one."""
        pause_s, attempt = FIRST_PAUSE_S, 0
        while True:
            yield attempt
            if self.remaining_s <= pause_s:
                return
            time.sleep(pause_s)
            pause_s, attempt = min(2 * pause_s, LONGEST_PAUSE_S), attempt + 1


def is_retriable(code: int) -> bool:
    """True for an error that passes by itself: elections, loading coordinators, transactions that are just ending."""
    return bool(for_code(code).retriable)


def error_name(code: int) -> str:
    """Kafka's name of an error code."""
    return str(getattr(for_code(code), "message", code))


def refusal(code: int, what: str) -> TidegateError:
    """The error for a definite answer that is no success: a UserError if it is about rights, else an EngineError."""
    if issubclass(for_code(code), AuthorizationError):
        return UserError(
            f"Kafka does not allow it: {what}", value=error_name(code), remedy="give the Kafka user the right for it"
        )
    return EngineError(
        f"Kafka refused: {what}", value=error_name(code), remedy=getattr(for_code(code), "description", "")
    )


def too_late(code: int | None, what: str) -> Unavailable:
    """The error for something that was not done before the deadline; `code` is the last answer, where there was one."""
    value = error_name(code) if code else None
    return Unavailable(f"Kafka did not do it in time: {what}", value=value, remedy="look at the brokers")
