"""Decide by the rules of the commit protocol: recovery of local states, the fence, the publication mark, compactions.

Pure functions: facts in, decision out. Nothing here reads a file, a clock or a broker. Each rule has a test that bears
its name.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple

from tidegate.contracts.errors import StateError, Superseded

Commit = tuple[int, str]
"""(batch, attempt) of a commit."""

NO_COMMIT: Commit = (-1, "")
"""Stands for `last` of a partition that no commit has changed; the state of the partition is empty."""


# --- local state -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class Header:
    """The header of a partition's local state: the commit that the state equals, its generation, and how it was left.

    `complete` is False while a change is under way. `durable` is True if the arrays were synced to disk since the last
    change. `boot_id` is that of the machine when the header was written. `before` is the commit to which the undo rows
    beside the arrays lead back; None if there are no undo rows.
    """

    table_id: str
    epoch: int
    batch: int
    attempt: str
    boot_id: str
    complete: bool
    durable: bool
    generation: int
    layout: tuple[str, int]
    capacity: dict[str, int]
    before: Commit | None = None


@dataclass(frozen=True, kw_only=True)
class Wanted:
    """The state that a batch starts from: the partition's `last` commit, as the driver of this epoch knows it.

    `lineage` has earlier commits of the partition. `snapshot` is the batch of the compaction that last rewrote the
    whole state of the partition (-1: none).
    """

    epoch: int
    batch: int
    last: Commit | None
    lineage: tuple[Commit, ...] = ()
    snapshot: int = -1


class RecoveryMethod(Enum):
    """The ways in which a task can bring its local state to the wanted commit."""

    GO_ON = "go on"
    UNDO = "undo"
    CATCH_UP = "catch up"
    REBUILD = "rebuild"


class RecoveryPlan(NamedTuple):
    """How to bring a local state to the wanted commit, and why.

    The log's state rows of batches above `after_batch` are to be applied; with UNDO, after the undo rows.
    """

    method: RecoveryMethod
    reason: str
    after_batch: int = -1

    @property
    def description(self) -> str:
        """Return how the state is recovered and why, as text for people."""
        return f"{self.method.value}: {self.reason}"


def check_not_superseded(header: Header | None, token: tuple[int, int]) -> None:
    """Raise Superseded if the header has a larger (epoch, batch) than the task, whose own is `token`."""
    # rule: superseded-task/decision
    if header is not None and (header.epoch, header.batch) > token:
        raise Superseded(
            "a newer attempt owns this partition's local state; this task has touched nothing",
            value=f"epoch {header.epoch}, batch {header.batch}; own: epoch {token[0]}, batch {token[1]}",
            remedy="do nothing: the newer driver continues",
        )


def choose_state(header: Header | None, wanted: Wanted, boot_id: str, layout: tuple[str, int]) -> RecoveryPlan:
    """Return how a task gets from the local state with this header to the wanted commit.

    Commits are compared by batch and attempt, because a failed attempt has the batch number of the one that succeeded.
    """
    if header is None:
        return RecoveryPlan(RecoveryMethod.REBUILD, "there is no local state")
    if unfit := _unfit(header, boot_id, layout):
        return RecoveryPlan(RecoveryMethod.REBUILD, unfit)
    here = (header.batch, header.attempt)
    # rule: usable-if-last, attempt-not-number
    if here == (wanted.last or NO_COMMIT):
        return RecoveryPlan(RecoveryMethod.GO_ON, "the local state equals the partition's last commit", header.batch)
    if _leads_on(here, wanted):
        return RecoveryPlan(RecoveryMethod.CATCH_UP, "the local state equals an earlier commit", header.batch)
    # rule: undo-failed-attempt/chosen, undo-to-last-commit/chosen
    if header.before is not None and (header.before == (wanted.last or NO_COMMIT) or _leads_on(header.before, wanted)):
        return RecoveryPlan(RecoveryMethod.UNDO, "the local state is that of a failed attempt", header.before[0])
    if here in wanted.lineage or header.before in wanted.lineage:
        return RecoveryPlan(
            RecoveryMethod.REBUILD, "a compaction came between: it has dropped deletes that would be missed"
        )
    return RecoveryPlan(RecoveryMethod.REBUILD, "the local state equals no commit of the partition")


def _leads_on(commit: Commit, wanted: Wanted) -> bool:
    """Return True for an earlier commit of the partition from which the log's rows lead to the wanted one.

    A compaction drops deletes, so commits before the newest snapshot do not qualify.
    """
    # rule: undo-to-last-commit/leads-on, catch-up-in-lineage, catch-up-from-snapshot
    return commit in wanted.lineage and commit[0] >= wanted.snapshot


def _unfit(header: Header, boot_id: str, layout: tuple[str, int]) -> str | None:
    # rule: dirty-rebuilt
    if not header.complete:
        return "the local state was left in the middle of a change"
    # rule: reboot-not-durable
    if header.boot_id != boot_id and not header.durable:
        return "the machine has been started again, and the local state was not durable"
    # rule: other-layout
    if header.layout != layout:
        return "the local state has another layout"
    return None


# --- the fence in Delta ----------------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class Entry:
    """The part of a log entry that the fence needs; epoch, batch, attempt and compacted are None if it is foreign.

    An entry that Tidegate did not write is foreign. `changes_data`: it adds or removes a file with `dataChange` true.
    `changes_table`: it changes the schema, properties or protocol. `compacted`: the batch of the newest compaction.
    """

    version: int
    epoch: int | None
    attempt: str | None
    changes_data: bool
    batch: int | None = None
    compacted: int | None = None
    changes_table: bool = False

    @property
    def foreign_change(self) -> bool:
        """Return True if the commit changes data and is not Tidegate's."""
        return self.epoch is None and self.changes_data


class Verdict(Enum):
    """What the entries above the version of a driver's handle mean for the driver's commit."""

    COMMITTED = "committed"
    TRY_ABOVE = "try above"
    FENCED = "fenced"
    ENGINE_ERROR = "engine error"
    STOP = "stop"


def judge_winners(above: Sequence[Entry], attempt: str, epoch: int) -> Verdict:
    """Return the outcome of an attempt, judged by the log entries above the version that its driver's handle is at.

    Rules, the first match decides:
    - A higher epoch means FENCED, even if the attempt itself is among the entries.
    - A foreign change of data means STOP; so does another Tidegate commit beside the own one, which must not exist.
    - The own attempt means COMMITTED.
    - A Tidegate commit of the same or an older epoch won a race: ENGINE_ERROR, the driver starts over. A foreign change
      of the table, or no entry at all, means the same.
    - Foreign commits that change neither data nor the table, such as `OPTIMIZE`, only took the version: TRY_ABOVE.
    """
    mine = any(entry.attempt == attempt for entry in above)
    rivals = [entry.epoch for entry in above if entry.epoch is not None and entry.attempt != attempt]
    # rule: higher-epoch-fences
    if any(rival > epoch for rival in rivals):
        return Verdict.FENCED
    # rule: foreign-data-stops, second-commit-stops
    if any(entry.foreign_change for entry in above) or (mine and rivals):
        return Verdict.STOP
    # rule: conflicting-entries-read
    if mine:
        return Verdict.COMMITTED
    # rule: older-epoch-starts-over, foreign-change-starts-over
    harmless = above and not rivals and not any(entry.changes_table for entry in above)
    # rule: optimize-tolerated
    return Verdict.TRY_ABOVE if harmless else Verdict.ENGINE_ERROR


# --- the mark --------------------------------------------------------------------------------------------------------

_MARK = re.compile(r"tidegate/1 (\S+) (\d+)")


class Mark(NamedTuple):
    """The publication mark of a partition: all output up to `batch` of the log with this table id is published."""

    table_id: str
    batch: int


def format_mark(table_id: str, batch: int) -> str:
    """Return the metadata string of the offset commit that is in the same Kafka transaction as a batch's output."""
    # rule: mark-format/written
    return f"tidegate/1 {table_id} {batch}"


def parse_mark(text: str) -> Mark | None:
    """Return the mark that `format_mark` wrote; None if the text has another form."""
    # rule: mark-format/read
    found = _MARK.fullmatch(text)
    return Mark(found[1], int(found[2])) if found else None


class PublishAction(Enum):
    """What to do about a partition's unpublished output before its next batch."""

    NOTHING = "nothing"
    PUBLISH = "publish"
    RESOLVE = "resolve"
    ASK = "ask"


class PublishDecision(NamedTuple):
    """A decision, and the batch that it is about (None with NOTHING and RESOLVE)."""

    what: PublishAction
    batch: int | None = None


def unpublished(mark: str | None, *, table_id: str, newest_batch: int, outputs: Sequence[int]) -> PublishDecision:
    """Return what is left to publish according to the mark.

    RESOLVE means that the mark is absent and that there is output, so the output topics have to be searched for it.
    `outputs` are the partition's batches with output to publish; those above the mark suffice, and the newest alone if
    the mark is absent. `newest_batch` is the newest batch of the log. Raise StateError, with the remedy, for a mark
    above the log, of another table or in another form, and if several batches are unpublished.
    """
    if mark is None:
        # rule: absent-mark-topics
        return PublishDecision(PublishAction.RESOLVE) if outputs else PublishDecision(PublishAction.NOTHING)
    return unpublished_above(_trusted(mark, table_id, newest_batch), outputs)


def unpublished_above(published: int, outputs: Sequence[int]) -> PublishDecision:
    """Return what is left to publish after `published`, the newest batch that is known to be published (-1: none).

    Raise StateError if several batches are left.
    """
    # rule: publish-above-mark/decision
    due = sorted({batch for batch in outputs if batch > published})
    # rule: one-batch-above-mark
    if len(due) > 1:
        raise StateError(
            "several batches of a partition are committed and not published; at most one can be",
            value=f"published up to {published}, not published: {due[:10]}",
            remedy="was the consumer group's offset or the output topic changed by hand? "
            "Set the group's metadata back, or give the operator another output topic",
        )
    return PublishDecision(PublishAction.PUBLISH, due[0]) if due else PublishDecision(PublishAction.NOTHING)


class Tail(NamedTuple):
    """What the end of an output partition shows about the operator's batches.

    `newest` is the newest batch that the headers of the operator's records name there; None if none does. `whole` is
    True if the batch in question was to be written there, and no records are missing where its records would be.
    """

    newest: int | None
    whole: bool


def decide_from_topics(batch: int, tails: Sequence[Tail]) -> PublishDecision:
    """Return what is left to publish if the mark is absent; `batch` is the partition's newest batch with output.

    `tails` are the ends of the output topics; they show whether the topics have that batch. Earlier batches need no
    check: all earlier output was published before the next batch was run. ASK means that the topics show neither its
    records nor that they are missing, so a person has to decide.
    """
    # rule: absent-mark-newest-output/decided
    if any(tail.newest is not None and tail.newest >= batch for tail in tails):
        return PublishDecision(PublishAction.NOTHING)
    # rule: absent-mark-person-decides/decided
    return PublishDecision(PublishAction.PUBLISH if any(tail.whole for tail in tails) else PublishAction.ASK, batch)


def _trusted(mark: str, table_id: str, newest_batch: int) -> int:
    parsed = parse_mark(mark)
    # rule: mark-of-other-format
    if parsed is None:
        raise _untrusted(
            "the publication mark has another form than Tidegate writes", mark, "who else commits offsets?"
        )
    # rule: mark-of-other-log
    if parsed.table_id != table_id:
        raise _untrusted("the publication mark belongs to another operator log", mark, f"this log is {table_id}.")
    # rule: mark-above-log
    if parsed.batch > newest_batch:
        raise _untrusted(
            "the publication mark is above the operator log: the log was set back, or is an old copy",
            mark,
            f"the log ends at batch {newest_batch}.",
        )
    return parsed.batch


def _untrusted(problem: str, mark: str, why: str) -> StateError:
    remedy = (
        "restore the right log; or, to start from the beginning, use another application name, which has a consumer "
        "group of its own"
    )
    return StateError(problem, value=mark, remedy=f"{remedy}; {why}")


# --- time and size ---------------------------------------------------------------------------------------------------


def idle_advance(active_clock: int, advanced_clock: int, now: int, idle_after: int) -> int | None:
    """Return by how many ms stream time is advanced in an idle partition.

    This is the wall-clock time since the partition became idle, without what earlier advances have counted.
    `active_clock` is the clock of the newest batch with records, `advanced_clock` that of the newest idle advance (-1:
    none). None means that the partition is not idle, or that earlier advances have counted all of the time.
    """
    growth = now - max(active_clock + idle_after, advanced_clock)
    return growth if growth > 0 else None


FIRST_CLOCK_MS = 1_577_836_800_000
"""2020-01-01 in ms. No batch was run before this date, so an earlier clock was not set."""


def newest_old(clocks: Iterable[int], now: int, age_ms: int) -> int:
    """Return the index of the newest clock that is more than `age_ms` before `now`; -1 if there is none.

    `clocks` are in the order of their events. All events before that index are old too, whatever their clocks say.
    Clocks can jump, so a clock proves nothing if it was not set (before FIRST_CLOCK_MS), if it is ahead of `now`, or if
    an earlier event is younger by its own clock, which means that the clock has jumped back since.
    """
    newest = -1
    for place, clock in enumerate(clocks):
        # rule: clock-jump/clock
        if FIRST_CLOCK_MS <= clock <= now:
            if clock >= now - age_ms:
                # rule: clock-jump/earlier
                break
            newest = place
    return newest


MAX_BATCHES = 512
MAX_FILES = 1_024
MAX_ROWS_PER_HELD = 4
MIN_DEAD_ROWS = 100_000


def compaction_due(batches: int, state_rows: int, held: int, files: int, max_batches: int = MAX_BATCHES) -> str | None:
    """Return the reason why a compaction is due; None if it is not.

    `batches` counts those since the newest compaction; with `max_batches` one is due in any case. `state_rows` and
    `files` count all in the log; `held` counts what the state holds.
    """
    if batches >= max_batches:
        return f"{batches} batches since the newest compaction"
    if files >= MAX_FILES and batches >= max_batches // 8:
        return f"{files} files"
    if state_rows - held >= MIN_DEAD_ROWS and state_rows >= MAX_ROWS_PER_HELD * held:
        return f"{state_rows} state rows for {held} held"
    return None
