"""The options that say how records name their windows, in an operator's input and in its output."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal, TypeAlias

from pydantic import AfterValidator, BeforeValidator, Field, ValidationInfo, field_validator

from tidegate.contracts.config.base import Config
from tidegate.contracts.config.option_types import Duration
from tidegate.contracts.config.rules import OperatorRules
from tidegate.contracts.errors import InvalidValue

AddedWindows = Literal["headers", "time", "session"]
"""How windows are added to output records: as headers, or in Kafka's format of time-windowed or session keys."""


class TimeWindows(Config):
    """Kafka's format of time-windowed keys: the key, then the window's start in eight bytes."""

    time: Annotated[Duration, Field(gt=0)]
    """Length of the windows, which the key does not contain."""


def _read_windows(value: object) -> object:
    if isinstance(value, Mapping):
        return TimeWindows.model_validate(value)
    if value is None or value in ("none", "ignore", "headers", "session") or isinstance(value, TimeWindows):
        return value
    raise InvalidValue("it is not a way to name windows", "write windows: headers, session, {time: 1h}, none or ignore")


Windows: TypeAlias = Annotated[
    Literal["none", "ignore", "headers", "session"] | TimeWindows | None, BeforeValidator(_read_windows)
]
OutputWindows = Literal["headers", "kafka"]


def check_output_windows(output: OutputWindows, info: ValidationInfo) -> OutputWindows:
    """Refuse `kafka` where Kafka's windowed keys cannot be written."""
    return writable_windows(output, info.data.get("windows"))


def writable_windows(output: OutputWindows, windows: Windows) -> OutputWindows:
    """Return how the output names windows that the input names so; raise InvalidValue if it cannot."""
    if output == "kafka" and windows in ("none", "ignore"):
        raise InvalidValue("the input's keys have no windows", "remove it")
    if output == "kafka" and windows == "headers":
        raise InvalidValue(
            "the input's headers do not say whether windows are sessions, whose keys have another format in Kafka",
            "name windows by headers in the output, too, or let the writer of the input write Kafka's format",
        )
    return output


InputWindowsInOutput = Annotated[OutputWindows, AfterValidator(check_output_windows)]
"""How an output names the windows that its input names; a field behind `windows`."""


class KeyRules(OperatorRules):
    """The options that decide what a key is: the record's key alone, or the record's key within its window."""

    windows: Windows = Field(default=None, validate_default=True)
    """Where a record names its window: in `headers`, or at the end of its key in Kafka's format: `{time: 1h}` for
    windows of that length, `session` for sessions. `none`: records that name a window are rejected. `ignore`: windows
    are not part of keys. Omitted: as declared by the operator in the same file that writes the topic, otherwise `none`.
    """

    @field_validator("windows")
    @classmethod
    def _none_by_default(cls, windows: Windows) -> Windows:
        return windows or "none"

    @property
    def windowed(self) -> bool:
        """Return whether windows are part of the key."""
        return self.windows not in ("none", "ignore")

    @classmethod
    def windows_before(cls, settings: Mapping[str, Any]) -> Windows:
        """Return the value of `windows` for settings written by a release that did not have this option."""
        return "ignore"

    def key_kind_conflict(self, before: KeyRules) -> dict[str, str]:
        """Return why keys held under `before` cannot be held under this configuration; empty if they can."""
        if self.windowed == before.windowed:
            return {}
        # rule: key-kind-fixed
        return {"windows": "one state cannot hold both windowed keys and plain keys"}


def added_windows(config: KeyRules, output: OutputWindows) -> AddedWindows | None:
    """Return how an operator whose output records have the windows of its input adds them to the records.

    None: there are no windows, or the input's headers, which the output keeps, name them already.
    """
    if not config.windowed or config.windows == "headers":
        return None
    return "headers" if output == "headers" else "session" if config.windows == "session" else "time"


def output_windows_of(config: KeyRules, output: OutputWindows) -> Windows:
    """Return how records that an operator passes on name their windows in the output; None if that is unknown."""
    return config.windows if output == "kafka" or not config.windowed else "headers"
