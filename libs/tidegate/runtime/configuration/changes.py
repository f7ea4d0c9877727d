"""Changes of an operator's configuration: which options differ, and which of them its state allows. Pure functions."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from tidegate.contracts.batch_metadata import BatchMeta, PartitionMeta
from tidegate.contracts.config.key_rules import KeyRules
from tidegate.contracts.config.operator_config import OperatorConfig
from tidegate.contracts.config.rules import Held, holds_nothing
from tidegate.contracts.errors import UserError
from tidegate.contracts.event_time import MAX_TIMESTAMP
from tidegate.runtime.configuration.application import config_hash, config_of, settings_of

LIVE = frozenset({"output", "dead_letters", "idle_after", "max_ahead", "rewind_window", "key_format", "value_format"})
"""Options that may change for operators of every kind."""

_NOT_MIXED = {"output_windows": "the output topic would have keys in two formats"}
ANOTHER_STATE = "the held state was made under the old value"
REMEDY = "undo the change, or give the operator a new name: it then starts from the beginning of its input"


@dataclass(frozen=True, kw_only=True)
class Change:
    """An option that differs, with its values as they would be written (None: left out).

    `refused`: why the change is not allowed; None: it is allowed. `note`: what then is worth knowing.
    """

    option: str
    before: Any
    after: Any
    refused: str | None = None
    note: str | None = None


def changes(
    before: OperatorConfig,
    after: OperatorConfig,
    known: int = MAX_TIMESTAMP,
    held: Held = holds_nothing,
) -> list[Change]:
    """Return the options that differ; of a pipeline's steps, what differs in each.

    `known`: how far behind stream time closed windows are still known, ms. `held`: how much a step holds.
    """
    was, now = settings_of(before), settings_of(after)
    if before.kind != after.kind:
        return [
            Change(
                option="kind",
                before=before.kind,
                after=after.kind,
                refused="the state of one kind cannot become that of another",
            )
        ]
    reasons, live = _NOT_MIXED | after.incompatibilities(before, known), LIVE | after.live
    parts, found = after.part_changes(before, known, held), list[Change]()
    for option in type(after).model_fields:
        if option in parts:
            found += [Change(**part._asdict()) for part in parts[option]]
        elif was.get(option) != now.get(option):
            refused = reasons.get(option, None if option in live else ANOTHER_STATE)
            found.append(Change(option=option, before=was.get(option), after=now.get(option), refused=refused))
    return found


def as_kept(newest: BatchMeta | None, config: OperatorConfig) -> OperatorConfig:
    """Return the configuration under which the log continues.

    A log that was written with `windows: ignore` keeps that until the file sets `windows` itself.
    """
    if not isinstance(config, KeyRules) or "windows" in config.model_fields_set:
        return config
    before = config_of(newest.settings) if newest is not None and newest.settings else None
    if not isinstance(before, KeyRules) or before.windows != "ignore":
        return config
    settings = config.model_dump(mode="json", include={*config.model_fields_set, "key_format"})
    # rule: log-without-windows/compared
    return config_of(settings | {"kind": config.kind, "windows": "ignore"})


def changes_since(newest: BatchMeta, config: OperatorConfig) -> list[Change]:
    """Return what differs from the configuration that the log was last written under; [] if the log does not name it.

    While no record was read, every change is allowed but that of the kind, whose log has another form.
    """
    if not newest.settings or newest.config == config_hash(config):
        return []
    known = newest.partitions.values()
    before, held = config_of(newest.settings), lambda step: sum(held_in(each, step) for each in known)
    found = changes(before, config, _known(newest), held)
    if any(known.totals.records_in for known in newest.partitions.values()):
        return found
    return [change if change.option == "kind" else replace(change, refused=None) for change in found]


def held_in(known: PartitionMeta, step: str) -> int:
    """Return how much a step of a pipeline holds in a partition; all that the partition holds if that is not known."""
    # rule: unmeasured-step-holds-all
    return known.measured.get(f"{step}.held_now", known.totals.held)


def remembered(newest: BatchMeta, config: OperatorConfig) -> dict[int, int]:
    """Return per partition the event time before which closed windows are forgotten, for a claim with `config`.

    They were forgotten under earlier configurations that kept them for a shorter time.
    """
    before = config_of(newest.settings).closed_kept_for_ms() if newest.settings else None
    if before is None or (config.closed_kept_for_ms() or 0) <= before:
        return {p: known.remembered_from for p, known in newest.partitions.items() if known.remembered_from is not None}
    begun = {partition: known for partition, known in newest.partitions.items() if known.begun}
    forgotten = {partition: known.stream_time - before for partition, known in begun.items()}
    return {p: max(time, begun[p].remembered_from or time) for p, time in forgotten.items()}


def _known(newest: BatchMeta) -> int:
    """Return how far behind stream time, ms, closed windows are known in every partition, despite its configuration."""
    known = newest.partitions.values()
    since = [each.stream_time - each.remembered_from for each in known if each.remembered_from is not None]
    return min(since, default=MAX_TIMESTAMP)


def check_changes(newest: BatchMeta, config: OperatorConfig) -> None:
    """Raise UserError, with all reasons, if the operator's state does not allow the changed configuration."""
    refused = [change for change in changes_since(newest, config) if change.refused]
    if refused:
        raise UserError(
            f"{newest.operator} cannot continue with this configuration",
            value="; ".join(f"{change.option}: {change.refused}" for change in refused),
            remedy=REMEDY,
        )
