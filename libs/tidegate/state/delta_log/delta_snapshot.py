"""Load the Delta table at one version and keep it up to date by applying the actions of later entries.

It is read from the newest checkpoint at or before the version and the entries after that. No folder is listed, so the
cost does not depend on the length of the log.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

import pyarrow as pa

from tidegate.contracts.batch_metadata import is_complete
from tidegate.contracts.errors import StateError
from tidegate.state.delta_log.actions import Action, add, data_file
from tidegate.state.delta_log.checkpoints import read_checkpoint
from tidegate.state.delta_log.data_files import DataFile, with_parts
from tidegate.state.delta_log.log_entries import (
    check_log_exists,
    checkpointed,
    document_of,
    entry_place,
    read_actions,
)
from tidegate.state.lake.port import Lake


@dataclass(kw_only=True)
class Snapshot:
    """The table at `version`, in memory; removed files are not kept.

    `state_rows` is the number of rows of kind `state` in `files`. `checkpoint` is the version of the newest checkpoint
    that is known (-1: none).
    """

    version: int = -1
    checkpoint: int = -1
    protocol: Action = field(default_factory=dict)
    metadata: Action = field(default_factory=dict)
    transactions: dict[str, Action] = field(default_factory=dict)
    files: dict[str, DataFile] = field(default_factory=dict)
    state_rows: int = 0

    def apply(self, version: int, actions: Iterable[Action]) -> None:
        """Apply the actions of the version's entry or checkpoint, and move to that version."""
        for action in actions:
            for name, fields in action.items():
                self._apply_one(name, fields)
        self.version = version

    def _apply_one(self, name: str, fields: Action) -> None:
        match name:
            case "add":
                self._add(data_file(fields))
            case "remove":
                self._take(fields["path"])
            case "txn":
                self.transactions[fields["appId"]] = fields
            case "metaData":
                self.metadata = fields
            case "protocol":
                self.protocol = fields

    def _add(self, file: DataFile) -> None:
        self._take(file.path)
        self.files[file.path] = file
        self.state_rows += _state_rows(file)

    def _take(self, path: str) -> None:
        file = self.files.pop(path, None)
        if file is not None:
            self.state_rows -= _state_rows(file)

    def with_all_parts(self, log: Lake, schema: pa.Schema) -> None:
        """Look into the files of which it is not known whose rows they have, because another program wrote them."""
        for path in [path for path, file in self.files.items() if file.parts is None]:
            self._add(with_parts(log, self.files[path], schema))

    def actions(self) -> list[Action]:
        """Return the table as actions for a checkpoint, without tombstones, which only a VACUUM would read."""
        # rule: metadata-in-checkpoint
        return [
            {"protocol": self.protocol},
            {"metaData": self.metadata},
            *({"txn": transaction} for transaction in self.transactions.values()),
            *(add(file, changes_data=False) for file in self.files.values()),
        ]

    def catch_up(self, log: Lake, version: int) -> list[list[Action]]:
        """Apply the entries up to that later version; return their actions."""
        applied = []
        for between in range(self.version + 1, version + 1):
            applied.append(_actions(log, between))
            self.apply(between, applied[-1])
        return applied


def _state_rows(file: DataFile) -> int:
    return sum(part.rows for part in file.parts or () if part.kind == "state")


def load(log: Lake, version: int) -> Snapshot:
    """Return the table at that version. Raise StateError if it cannot be read, Unavailable while the lake is away."""
    known = checkpointed(log)
    if known is None or known > version:
        known = _complete_before(log, version)
    if known is None or (begun := read_checkpoint(log, known)) is None:
        return _load_downwards(log, version)
    snapshot = Snapshot(checkpoint=known)
    snapshot.apply(known, begun)
    snapshot.catch_up(log, version)
    return snapshot


def _complete_before(log: Lake, version: int) -> int | None:
    """Return the version of the complete metadata that the version's metadata builds upon; None if it is not known.

    Most of them have a checkpoint. If entries of other programs follow it, another version is returned, which is tried
    in vain.
    """
    document = None if version < 0 else document_of(read_actions(log, version) or ())
    if document is None:
        return None
    newer: int = 0 if is_complete(document) else document["batch"] - document["base"]
    return max(0, version - newer)


def _load_downwards(log: Lake, version: int) -> Snapshot:
    """Return the table at that version, from the newest checkpoint at or before it, which no hint names."""
    at, tail = version, list[list[Action]]()
    while at >= 0 and (begun := read_checkpoint(log, at)) is None:
        tail.append(_actions(log, at))
        at -= 1
    snapshot = Snapshot(checkpoint=at)
    if at >= 0:
        snapshot.apply(at, begun or ())
    for between, actions in enumerate(reversed(tail), at + 1):
        snapshot.apply(between, actions)
    return snapshot


def _actions(log: Lake, version: int) -> list[Action]:
    actions = read_actions(log, version)
    if actions is None:
        check_log_exists(log)
        raise StateError(
            f"the operator log cannot be read at version {version}",
            value=entry_place(log, version),
            remedy="was it cleaned up behind that version, or damaged? Bring its _delta_log back from a copy",
        )
    return actions
