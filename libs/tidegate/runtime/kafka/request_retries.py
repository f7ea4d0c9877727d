"""Retries requests to Kafka until a deadline, and tells which error codes can be retried."""

from __future__ import annotations

from collections.abc import Iterator

from kafka.errors import AuthorizationError, for_code

from tidegate.contracts.clock import Clock
from tidegate.contracts.errors import EngineError, TidegateError, Unavailable, UserError

FIRST_PAUSE_S = 0.001
LONGEST_PAUSE_S = 0.1


class Deadline:
    """A point in time on the monotonic clock, `seconds` from now."""

    def __init__(self, seconds: float, clock: Clock) -> None:
        self.clock, self._at = clock, clock.monotonic() + seconds

    @property
    def remaining_s(self) -> float:
        """Return the seconds left; 0 when the deadline has passed."""
        return max(0.0, self._at - self.clock.monotonic())

    def attempts(self) -> Iterator[int]:
        """Yield 0, 1, 2, ... until the deadline has passed, at least once; sleep in between.

        The pause doubles each time, up to LONGEST_PAUSE_S.
        """
        pause_s, attempt = FIRST_PAUSE_S, 0
        while True:
            yield attempt
            if self.remaining_s <= pause_s:
                return
            self.clock.sleep(pause_s)
            pause_s, attempt = min(2 * pause_s, LONGEST_PAUSE_S), attempt + 1


def is_retriable(code: int) -> bool:
    """Return True for an error that passes without intervention.

    Examples are leader elections, coordinators that are loading, and transactions that are just ending.
    """
    # rule: concurrent-transactions, forgotten-producer-id
    return bool(for_code(code).retriable)


def error_name(code: int) -> str:
    """Return Kafka's name of the error code."""
    return str(getattr(for_code(code), "message", code))


def error_for(code: int, what: str) -> TidegateError:
    """Return the error for an error code that must not be retried: UserError for missing rights, else EngineError."""
    if issubclass(for_code(code), AuthorizationError):
        return UserError(
            f"Kafka does not allow it: {what}", value=error_name(code), remedy="give the Kafka user the right for it"
        )
    return EngineError(
        f"Kafka refused: {what}", value=error_name(code), remedy=getattr(for_code(code), "description", "")
    )


def timed_out(code: int | None, what: str) -> Unavailable:
    """Return the error for a request that did not succeed before the deadline.

    `code`: the error code of the last response; None or 0 if there was none.
    """
    value = error_name(code) if code else None
    return Unavailable(f"Kafka did not do it in time: {what}", value=value, remedy="check the brokers")
