"""Commit to an operator log: one Delta table per operator, one commit per batch, fenced by epoch.

A handle stays at the version of its own last commit, so that the commit of another driver always causes a conflict. A
commit creates one file, which must not exist yet. Its cost does not depend on the length of the log, because nothing is
listed and the table's file list is kept in memory.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Future
from typing import NoReturn

import pyarrow as pa
from deltalake import Schema

from tidegate.contracts.batch_metadata import BatchMeta
from tidegate.contracts.clock import SYSTEM_CLOCK, Clock
from tidegate.contracts.errors import Outdated, StateError, Unavailable
from tidegate.contracts.log_schema import format_from_claim
from tidegate.state.delta_log.actions import Action, add, commit_info, remove, transaction
from tidegate.state.delta_log.attempt_files import delete_files
from tidegate.state.delta_log.checkpoints import write_checkpoint
from tidegate.state.delta_log.creation import FORMAT_KEY, create_table
from tidegate.state.delta_log.data_files import DataFile, Part, require_whole
from tidegate.state.delta_log.delta_snapshot import Snapshot, load
from tidegate.state.delta_log.log_entries import (
    encoded,
    entries_above,
    entry_key,
    entry_place,
    newest_entries,
    newest_version,
)
from tidegate.state.delta_log.log_version import LogVersion
from tidegate.state.delta_log.newest_metadata import Newest
from tidegate.state.delta_log.recent_entries import RecentEntries
from tidegate.state.delta_log.refusals import is_pipeline, refusal, refuse_another, refuse_foreign_changes
from tidegate.state.lake.port import Lake
from tidegate.state.protocol_decisions import Verdict, judge_winners

CHECKPOINT_EVERY = 64
"""Least number of commits between two checkpoints; a reader replays the entries since the last one."""

CHECKPOINT_FILES_PER_ENTRY = 64
"""Number of live files for which a checkpoint waits for one more commit.

So the cost of a checkpoint, spread over the commits since the last one, is at most that of so many files per commit.
"""

RETRY_PAUSES_S = (0.0, 0.05, 0.1, 0.2, 0.4, 0.8, 1.6, 3.2)
"""Pauses before each try of the identical commit while its outcome is unknown, s."""


class OperatorLog(LogVersion):
    """A handle on an operator's log for the driver: at one version of its Delta table, until it commits the next."""

    def __init__(self, lake: Lake, snapshot: Snapshot, clock: Clock = SYSTEM_CLOCK) -> None:
        super().__init__(lake, snapshot)
        self._clock = clock
        self._new_columns: list[pa.Field] = []
        self._own_entry: bytes | None = None
        self._puts = 0
        self._checkpoint: Future[None] | None = None
        self._recent = RecentEntries(lake, clock)

    @classmethod
    def open(
        cls,
        lake: Lake,
        operator: str,
        schema: pa.Schema,
        *,
        create: bool,
        steps_change: bool = False,
        clock: Clock = SYSTEM_CLOCK,
    ) -> OperatorLog:
        """Return a handle at the newest version, for the driver; with `create`, create the table if there is none.

        With `steps_change`, the log of a pipeline may have other columns than `schema`, because of steps that come and
        go: those that it lacks are added with the next commit.

        Raise StateError, with a remedy, if there is no log, if it is damaged, if it has another format, operator or
        schema, and if another program changed its data. Raise Unavailable while the lake fails.
        """
        newest = newest_version(lake)
        if newest is None and create:
            create_table(lake, operator, schema, clock.now_ms())
            newest = newest_version(lake)
        if newest is None:
            raise StateError(
                "there is no operator log", value=lake.place, remedy="run the operator once, or correct `lake`"
            )
        # rule: foreign-change-refused/data
        refuse_foreign_changes(lake, newest_entries(lake, newest))
        log = cls(lake, load(lake, newest), clock)
        evolves = steps_change and is_pipeline(schema)
        refuse_another(lake.place, log._snapshot, operator, log.schema, schema, evolves=evolves)
        # rule: steps-add-columns
        log._new_columns = [field for field in schema if evolves and field.name not in log.schema.names]
        log.newest()
        return log

    def check_own_entry(self) -> None:
        """Check that the entry which this handle committed last is unchanged; do nothing before its first commit.

        Once a minute also check those of the last minutes, if the lake is an object store.

        Raise Unavailable if the entry is missing, as when the lake is not mounted. Raise StateError if another program
        has replaced it, as Spark does on S3 without a condition: a batch may be lost.
        """
        if self._own_entry is None:
            return
        found = self.lake.get(entry_key(self.version))
        if found is None:
            raise Unavailable(
                "the lake is unavailable", value=self.place, remedy="mount it again, or restore the folder"
            )
        # rule: replaced-entry-stops
        if found != self._own_entry:
            self._refuse_replaced(self.version)
        # rule: replaced-entry-stops/earlier
        if (version := self._recent.replaced()) is not None:
            self._refuse_replaced(version)

    def _refuse_replaced(self, version: int) -> NoReturn:
        raise StateError(
            "another program has replaced an entry of the operator log",
            value=entry_place(self.lake, version),
            remedy="keep other programs from writing to _delta_log; restore that entry from an earlier version of "
            "the object, and start again",
        )

    def take_puts(self) -> int:
        """Return how many objects this handle's commits have put since the last call, data files included."""
        puts, self._puts = self._puts, 0
        return puts

    def commit(
        self,
        meta: BatchMeta,
        files: Sequence[DataFile],
        replaces: Sequence[DataFile] = (),
        records: Sequence[DataFile] = (),
    ) -> None:
        """Commit the batch durably and move the handle to its version.

        `files` are the batch's data files. With `replaces`, they hold the rows of those files again, and the commit is
        marked as no change of data for readers of the log. `records` are files of a compaction with new rows, which no
        batch has written before.

        Raise Fenced if a newer driver owns the operator. Raise StateError if another program changed the log, or if the
        batch number was used before. Raise Outdated if a file of `replaces` is gone, as after a foreign `OPTIMIZE`;
        nothing is committed then. Raise EngineError if a data file is not whole on this machine, if another driver won
        a race, or if the outcome is unknown; the driver then starts over with a claim, which resolves each of these.

        Do not use the handle after an error. If the check of the data files or the checkpoint fails, both of which come
        before the entry is written, the attempt's files are deleted here. After Outdated the caller may delete them.
        After any other error they must not be deleted, as they may be committed.
        """
        self._refuse_reuse(meta)
        self._refuse_partial(replaces)
        try:
            # rule: committed-files-whole/checked
            require_whole(self.lake, [*files, *records])
            self._end_checkpoint()
        except Exception:  # no entry was written, so no commit can name these files
            # rule: failed-batch-files
            delete_files(self.lake, [file.path for file in (*files, *records)])
            raise
        complete = self._has_to_be_complete(meta)
        # rule: metadata-as-change/entry
        document = meta.to_json() if complete else meta.changes_to_json(self._known.meta, self._known.base)
        # rule: compaction-changes-no-data/added
        added = [add(file, changes_data=not replaces) for file in files]
        added += [add(file, changes_data=True) for file in records]
        removed = [remove(file, meta.clock) for file in {file.path: file for file in replaces}.values()]
        # rule: format-upgrade/table, txn-in-commit
        actions = [commit_info(meta, document), transaction(meta), *self._upgrade(), *added, *removed]
        entry = encoded(actions)
        version = self._commit_until_clear(entry, meta, replaces)
        self._puts += len(files) + len(records) + 1
        self._snapshot.catch_up(self.lake, version - 1)
        self._snapshot.apply(version, actions)
        self._own_entry = entry
        self._recent.add(version, entry)
        self._newest = Newest(meta, meta.batch, version) if complete else self._known._replace(meta=meta)

    def _has_to_be_complete(self, meta: BatchMeta) -> bool:
        """Return True for a driver's first commit, a compaction, and a commit of which a checkpoint will be written.

        So the entries that the metadata of a readable version builds upon never lie before that version's checkpoint.
        """
        newest = self.newest()
        # rule: metadata-complete/written
        return (
            newest is None
            or meta.epoch != newest.epoch
            or meta.action == "compaction"
            or self._needs_checkpoint(self.version + 1)
        )

    @property
    def _known(self) -> Newest:
        if self._newest is None:
            raise AssertionError("changes against no metadata")
        return self._newest

    def _upgrade(self) -> list[Action]:
        """Return the action that raises the format of a log of format 1, or adds the columns of a pipeline's new steps.

        Other logs stay as they are.
        """
        metadata = self._snapshot.metadata
        kept = format_from_claim(self.format)
        if self.format == kept and not self._new_columns:
            return []
        configuration = {**metadata["configuration"], FORMAT_KEY: str(kept)}
        schema = Schema.from_arrow(pa.schema([*self.schema, *self._new_columns])).to_json()
        self._new_columns = []
        return [{"metaData": {**metadata, "configuration": configuration, "schemaString": schema}}]

    def _refuse_reuse(self, meta: BatchMeta) -> None:
        newest = self.newest()
        # rule: batch-number-once
        if newest is not None and meta.batch <= newest.batch:
            raise StateError("a batch number is never used again", value=f"{meta.batch}, after {newest.batch}")

    def _refuse_partial(self, replaces: Sequence[DataFile]) -> None:
        """Raise StateError if only some parts of a file are replaced: a file is removed as a whole."""
        if replaces:
            self._snapshot.with_all_parts(self.lake, self.schema)
        replaced = dict[str, set[Part]]()
        for file in replaces:
            replaced.setdefault(file.path, set()).update(file.parts or ())
        # rule: whole-files-replaced
        lost = [path for path, parts in replaced.items() if self.has_file(path) and parts != self._parts(path)]
        if lost:
            raise StateError("a compaction was to remove rows that it has not read", value=self.place / lost[0])

    def _parts(self, path: str) -> set[Part]:
        return set(self._snapshot.files[path].parts or ())

    def begin_checkpoint(self, start: Callable[[Callable[[], None]], Future[None]]) -> None:
        """Start to write a checkpoint of the handle's version, if one is due and that version's metadata is complete.

        `start` is called with the function that writes it, and returns the future of its end, for which the next commit
        waits. Without this, that commit writes the checkpoint itself.
        """
        # rule: metadata-complete/checkpoint
        if self._newest is None or self._newest.version != self.version or not self._needs_checkpoint(self.version):
            return
        if self._checkpoint is None:
            version, snapshot = self.version, self._copied_snapshot()
            self._checkpoint = start(lambda: write_checkpoint(self.lake, version, snapshot.actions()))

    def _end_checkpoint(self) -> None:
        """Have the checkpoint written that is due or was begun.

        This is done before a commit, so that a failure here leaves no doubt about the outcome of the commit.
        """
        self.begin_checkpoint(_at_once)
        if (begun := self._checkpoint) is not None:
            self._checkpoint = None
            begun.result()
            self._puts += 2
            self._snapshot.checkpoint = self.version

    def _needs_checkpoint(self, version: int) -> bool:
        """Return True if a reader of the version replays so many entries that a checkpoint is worth its cost."""
        snapshot = self._snapshot
        wait = CHECKPOINT_EVERY + len(snapshot.files) // CHECKPOINT_FILES_PER_ENTRY
        return version - max(snapshot.checkpoint, 0) >= wait

    def _commit_until_clear(self, entry: bytes, meta: BatchMeta, replaces: Sequence[DataFile]) -> int:
        """Retry the identical commit until it is accepted or refused; return its version.

        Raise Unavailable if the outcome is still unknown after the last retry. Listing the folder would prove nothing,
        because a write can still land later. If an earlier try has landed, the next one conflicts with it.
        """
        unclear: Exception | None = None
        for pause_s in RETRY_PAUSES_S:
            self._clock.sleep(pause_s)
            try:
                return self._try_commit(entry, meta, replaces)
            except Unavailable as error:
                # rule: identical-retry, listing-decides-nothing
                unclear = error
        raise Unavailable(
            "it is unknown whether the batch was committed to the lake",
            value=f"batch {meta.batch}, attempt {meta.attempt}: {unclear}",
            remedy="check that the lake is writable; the driver starts over with a claim, which resolves it",
        ) from unclear

    def _try_commit(self, entry: bytes, meta: BatchMeta, replaces: Sequence[DataFile]) -> int:
        # rule: compaction-not-outdated
        self._refuse_outdated(meta, replaces)
        # rule: handle-at-own-commit
        while not self.lake.put_if_absent(entry_key(self.version + 1), entry):
            above = entries_above(self.lake, self.version)
            verdict = judge_winners(above, meta.attempt, meta.epoch)
            if verdict is Verdict.COMMITTED:
                return next(entry.version for entry in above if entry.attempt == meta.attempt)
            if verdict is not Verdict.TRY_ABOVE:
                raise refusal(verdict, self.lake, meta, above)
            self._snapshot.catch_up(self.lake, above[-1].version)
            # rule: compaction-not-outdated
            self._refuse_outdated(meta, replaces)
        return self.version + 1

    def _refuse_outdated(self, meta: BatchMeta, replaces: Sequence[DataFile]) -> None:
        """Raise Outdated unless the table still has each file that the commit replaces; called before every put.

        The entry is put right above the handle's version, so no other entry can come in between. Earlier tries of the
        commit cannot land any more: entries of others have taken every version up to the handle's.
        """
        gone = [file.path for file in replaces if not self.has_file(file.path)]
        if gone:
            raise Outdated(
                "files that a compaction was to replace are no longer in the log (a foreign OPTIMIZE?)",
                value=f"batch {meta.batch} in {self.place}: {len(gone)} files, such as {gone[0]}",
                remedy="do nothing: nothing was committed, and the compaction is planned again",
            )


def _at_once(work: Callable[[], None]) -> Future[None]:
    """Do the work and return the future of its end."""
    work()
    done: Future[None] = Future()
    done.set_result(None)
    return done
