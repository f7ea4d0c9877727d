"""The commit protocol's rules as pure functions: facts in, decision out.

Nothing here reads a file, a clock or a broker. Each rule has a test that bears its name.
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
"""`last` of a partition that no commit has touched; its state is empty."""


# --- local state -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class Header:
    """What a partition's local state says about itself: which commit it equals, where it lives, how it was left.

    `before`: the commit to which the undo rows beside its arrays lead back; None: there are no such rows.
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

    `lineage` has earlier commits of the partition; `snapshot` is the batch of its newest compaction (-1: none).
    """

    epoch: int
    batch: int
    last: Commit | None
    lineage: tuple[Commit, ...] = ()
    snapshot: int = -1


class Way(Enum):
    """How a task comes to the state that is wanted."""

    GO_ON = "go on"
    UNDO = "undo"
    CATCH_UP = "catch up"
    REBUILD = "rebuild"


class StateUse(NamedTuple):
    """A way, why, and the batch after which the log's state rows are to be applied; with UNDO, after the undo rows."""

    way: Way
    reason: str
    after_batch: int = -1


def may_take(header: Header | None, token: tuple[int, int]) -> None:
    """Nothing, if a task of (epoch, batch) may change the state. Superseded if the header bears a larger one."""
    if header is not None and (header.epoch, header.batch) > token:
        raise Superseded(
            "a newer attempt owns this partition's local state; this task has touched nothing",
            value=f"epoch {header.epoch}, batch {header.batch}; own: epoch {token[0]}, batch {token[1]}",
            remedy="none is needed: the newer driver goes on",
        )


def choose_state(header: Header | None, wanted: Wanted, boot_id: str, layout: tuple[str, int]) -> StateUse:
    """Decide what the local state is good for. The attempt decides: a failed one has the same batch."""
    if header is None:
        return StateUse(Way.REBUILD, "there is no local state")
    if unfit := _unfit(header, boot_id, layout):
        return StateUse(Way.REBUILD, unfit)
    here = (header.batch, header.attempt)
    if here == (wanted.last or NO_COMMIT):
        return StateUse(Way.GO_ON, "the local state equals the partition's last commit", header.batch)
    if _leads_on(here, wanted):
        return StateUse(Way.CATCH_UP, "the local state equals an earlier commit", header.batch)
    if header.before is not None and (header.before == (wanted.last or NO_COMMIT) or _leads_on(header.before, wanted)):
        return StateUse(Way.UNDO, "the local state is that of a failed attempt", header.before[0])
    if here in wanted.lineage or header.before in wanted.lineage:
        return StateUse(Way.REBUILD, "a compaction came between: it has dropped deletes that would be missed")
    return StateUse(Way.REBUILD, "the local state equals no commit of the partition")


def _leads_on(commit: Commit, wanted: Wanted) -> bool:
    """True for an earlier commit of the partition from which the log's rows lead on to the wanted one."""
    return commit in wanted.lineage and commit[0] >= wanted.snapshot


def _unfit(header: Header, boot_id: str, layout: tuple[str, int]) -> str | None:
    if not header.complete:
        return "the local state was left in the middle of a change"
    if header.boot_id != boot_id and not header.durable:
        return "the machine has been started again, and the local state was not durable"
    if header.layout != layout:
        return "the local state has another layout"
    return None


# --- the fence in Delta ----------------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class Entry:
    """What the fence knows of a log entry; epoch, batch and attempt are None where Tidegate did not write it.

    `changes_table`: it says another schema, property or protocol. `compacted`: the batch of the newest compaction.
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
        """True for a commit that changes data and is not Tidegate's."""
        return self.epoch is None and self.changes_data


class Verdict(Enum):
    """What the entries above a driver's handle mean for its commit."""

    COMMITTED = "committed"
    TRY_ABOVE = "try above"
    FENCED = "fenced"
    ENGINE_ERROR = "engine error"
    STOP = "stop"


def judge_winners(above: Sequence[Entry], attempt: str, epoch: int) -> Verdict:
    """What has become of an attempt, from the entries above the handle that it was committed from.

    A higher epoch fences, whether or not the attempt is among them; a foreign change of data stops. A rival of the same
    or an older epoch won a race: an engine error, the driver starts over; beside the own commit it must not exist.
    Foreign commits that change neither data nor the table, such as `OPTIMIZE`, have only taken the version.
    """
    mine = any(entry.attempt == attempt for entry in above)
    rivals = [entry.epoch for entry in above if entry.epoch is not None and entry.attempt != attempt]
    if any(rival > epoch for rival in rivals):
        return Verdict.FENCED
    if any(entry.foreign_change for entry in above) or (mine and rivals):
        return Verdict.STOP
    if mine:
        return Verdict.COMMITTED
    harmless = above and not rivals and not any(entry.changes_table for entry in above)
    return Verdict.TRY_ABOVE if harmless else Verdict.ENGINE_ERROR


# --- the mark --------------------------------------------------------------------------------------------------------

_MARK = re.compile(r"tidegate/1 (\S+) (\d+)")


class Mark(NamedTuple):
    """What has been published of a partition: everything up to the batch, of the log with the table id."""

    table_id: str
    batch: int


def format_mark(table_id: str, batch: int) -> str:
    """The metadata string of the offset commit that travels with a batch's output."""
    return f"tidegate/1 {table_id} {batch}"


def parse_mark(text: str) -> Mark | None:
    """The mark; None where the text has another form."""
    found = _MARK.fullmatch(text)
    return Mark(found[1], int(found[2])) if found else None


class Settling(Enum):
    """What is to be done about a partition's output before its next batch."""

    NOTHING = "nothing"
    PUBLISH = "publish"
    RESOLVE = "resolve"
    ASK = "ask"


class Settle(NamedTuple):
    """A decision, and the batch to publish from the log."""

    what: Settling
    batch: int | None = None


def unpublished(mark: str | None, *, table_id: str, newest_batch: int, outputs: Sequence[int]) -> Settle:
    """What is left to publish, by the mark; RESOLVE where it is absent and there is output: look for it in the topics.

    `outputs` are the partition's batches with output to publish (those above the mark suffice; the newest alone where
    it is absent), `newest_batch` that of the log. StateError, with the way on, for a mark above the log, of another
    table or in another form.
    """
    if mark is None:
        return Settle(Settling.RESOLVE) if outputs else Settle(Settling.NOTHING)
    return unpublished_above(_trusted(mark, table_id, newest_batch), outputs)


def unpublished_above(published: int, outputs: Sequence[int]) -> Settle:
    """What is left to publish above a batch that is known to be published (-1: none). StateError if it is several."""
    due = sorted({batch for batch in outputs if batch > published})
    if len(due) > 1:
        raise StateError(
            "several batches of a partition are committed and not published; at most one can be",
            value=f"published up to {published}, not published: {due[:10]}",
            remedy="was the consumer group's offset or the output topic changed by hand? "
            "Set the group's metadata back, or give the operator another output topic",
        )
    return Settle(Settling.PUBLISH, due[0]) if due else Settle(Settling.NOTHING)


class Tail(NamedTuple):
    """What the end of an output partition shows: the newest batch that the operator's records name there; None: none.

    `whole`: the batch in question was to be written there, and nothing is missing where its records would be.
    """

    newest: int | None
    whole: bool


def resolved(batch: int, tails: Sequence[Tail]) -> Settle:
    """Return what is left to publish where the mark is absent; `batch` is the partition's newest output.

    One question: do the output topics, which end in `tails`, have that batch? All before it were published, since no
    batch is run earlier. ASK where neither its records nor their absence can be seen: a person has to say.
    """
    if any(tail.newest is not None and tail.newest >= batch for tail in tails):
        return Settle(Settling.NOTHING)
    return Settle(Settling.PUBLISH if any(tail.whole for tail in tails) else Settling.ASK, batch)


def _trusted(mark: str, table_id: str, newest_batch: int) -> int:
    parsed = parse_mark(mark)
    if parsed is None:
        raise _untrusted(
            "the publication mark has another form than Tidegate writes", mark, "who else commits offsets?"
        )
    if parsed.table_id != table_id:
        raise _untrusted("the publication mark belongs to another operator log", mark, f"this log is {table_id}.")
    if parsed.batch > newest_batch:
        raise _untrusted(
            "the publication mark is above the operator log: the log was set back, or is an old copy",
            mark,
            f"the log ends at batch {newest_batch}.",
        )
    return parsed.batch


def _untrusted(problem: str, mark: str, why: str) -> StateError:
    way_on = (
        "bring the right log back; or, to begin anew, name another application, which has a consumer group of its own"
    )
    return StateError(problem, value=mark, remedy=f"{why} Way on: {way_on}")


# --- time and size ---------------------------------------------------------------------------------------------------


def idle_advance(active_clock: int, advanced_clock: int, now: int, idle_after: int) -> int | None:
    """By how many ms T grows: the wall time since the partition became idle that no earlier advance has counted.

    `active_clock`: the clock of the newest batch with records; `advanced_clock`: that of the newest advance (-1: none).
    None: the partition is not idle, or all of it is counted.
    """
    growth = now - max(active_clock + idle_after, advanced_clock)
    return growth if growth > 0 else None


FIRST_CLOCK_MS = 1_577_836_800_000
"""2020-01-01. No batch was run before that: a clock that says so had not been set."""


def newest_old(clocks: Iterable[int], now: int, age_ms: int) -> int:
    """Return the place of the newest clock that is more than `age_ms` back, -1 if none is; `clocks` in order of events.

    All before that place is old too, whatever its own clock said. A clock can jump, so it proves nothing if it was not
    set, if it is ahead of `now`, or if an earlier event is younger by its own clock: then this one has jumped back.
    """
    newest = -1
    for place, clock in enumerate(clocks):
        if FIRST_CLOCK_MS <= clock <= now:
            if clock >= now - age_ms:
                break
            newest = place
    return newest


MAX_BATCHES = 512
MAX_FILES = 1_024
MAX_ROWS_PER_HELD = 4
MIN_DEAD_ROWS = 100_000


def compaction_due(batches: int, state_rows: int, held: int, files: int) -> str | None:
    """Why a compaction is due, from what has come since the newest one and what the log has now; None: it is not."""
    if batches >= MAX_BATCHES:
        return f"{batches} batches since the newest compaction"
    if files >= MAX_FILES and batches >= MAX_BATCHES // 8:
        return f"{files} files"
    if state_rows - held >= MIN_DEAD_ROWS and state_rows >= MAX_ROWS_PER_HELD * held:
        return f"{state_rows} state rows for {held} held"
    return None
