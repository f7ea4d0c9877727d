"""What of a configuration has changed, and what of that a state can go on under. Pure.

May import: contracts, runtime.application.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tidegate.contracts.config import OperatorConfig
from tidegate.contracts.errors import UserError
from tidegate.contracts.schema import BatchMeta
from tidegate.runtime.application import config_hash, config_of, settings_of

LIVE = frozenset({"output", "dead_letters", "idle_after", "max_ahead", "rewind_window", "key_format", "value_format"})
"""What may change of any kind of operator."""

ANOTHER_STATE = "what is held was made under another one"
REMEDY = "give the operator a new name, so that it starts anew from its input, or take back the change"


@dataclass(frozen=True, kw_only=True)
class Change:
    """An option that differs, as it would be written (None: left out), and why that is `refused` (None: it is not)."""

    option: str
    before: Any
    after: Any
    refused: str | None = None


def changes(before: OperatorConfig, after: OperatorConfig) -> list[Change]:
    """The options that differ."""
    was, now = settings_of(before), settings_of(after)
    if before.kind != after.kind:
        return [Change(option="kind", before=before.kind, after=after.kind, refused="it is another operator")]
    reasons, live = after.cannot_follow(before), LIVE | after.live
    return [
        Change(
            option=option,
            before=was.get(option),
            after=now.get(option),
            refused=reasons.get(option, None if option in live else ANOTHER_STATE),
        )
        for option in type(after).model_fields
        if was.get(option) != now.get(option)
    ]


def changes_since(newest: BatchMeta, config: OperatorConfig) -> list[Change]:
    """What differs from the configuration under which the log was written last; nothing where it has no such."""
    if not newest.settings or newest.config == config_hash(config):
        return []
    return changes(config_of(newest.settings), config)


def check_changes(newest: BatchMeta, config: OperatorConfig) -> None:
    """Nothing, if what is held can go on under the configuration; UserError with every reason why not."""
    refused = [change for change in changes_since(newest, config) if change.refused]
    if refused and any(counts.records_in for counts in newest.totals.values()):
        raise UserError(
            f"{newest.operator} cannot go on under this configuration",
            value="; ".join(f"{change.option}: {change.refused}" for change in refused),
            remedy=REMEDY,
        )
