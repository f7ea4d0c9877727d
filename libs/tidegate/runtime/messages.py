"""What travels between the driver and the tasks of one attempt.

Everything here is small and picklable: paths, numbers and names; records and rows never pass through the driver.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, NamedTuple

from tidegate.contracts.config import AddedWindows, OperatorRules
from tidegate.contracts.errors import TidegateError
from tidegate.contracts.event_time import ALWAYS
from tidegate.contracts.schema import Counts, Raised
from tidegate.runtime.kafka.transactions import Producer
from tidegate.runtime.publishing.topics import Outlets
from tidegate.state.decisions import Wanted
from tidegate.state.delta_log.data_files import DataFile

Action = Literal["batch", "idle", "flush", "apply"]


@dataclass(frozen=True, kw_only=True)
class Attempt:
    """One try of one batch: what is the same for all of its partitions. `topic` is what the log calls the input."""

    operator: str
    config: OperatorRules
    topic: str
    log: Path
    version: int
    table_id: str
    state: Path
    epoch: int
    batch: int
    attempt: str
    clock: int


@dataclass(frozen=True, kw_only=True)
class KafkaAttempt(Attempt):
    """An attempt between topics; `limits`: the largest record batch that each outlet takes, in bytes.

    `times_in_values`: event times are not the records' own timestamps. `windows`: how the output is told of windows.
    """

    kafka: dict[str, str]
    group: str
    outlets: Outlets
    limits: Mapping[str, int]
    times_in_values: bool
    windows: AddedWindows | None
    max_batch_bytes: int
    deadline_s: float


@dataclass(frozen=True, kw_only=True)
class TablePlan:
    """One partition of the table that an operator reads, as of the Delta version that the batch is pinned to.

    `name` is that of the replica's folder, `wanted` the commit of the table's log that the replica is to equal, `tail`
    the state files that the commits of its lineage added. `floor`: the first time whose versions are all there; None:
    of a log that does not tell it. `open_until`: records held for a grace leave up to that time.
    """

    name: str
    config: OperatorRules
    log: Path
    version: int
    table_id: str
    stream_time: int
    wanted: Wanted
    tail: tuple[DataFile, ...]
    floor: int | None = None
    open_until: int = ALWAYS


class Hold(NamedTuple):
    """What a table keeps: from `needs` on for its readers; what was before `floor` has gone already."""

    floor: int
    needs: int


@dataclass(frozen=True, kw_only=True)
class PartitionPlan:
    """What one partition has to do: read offsets [start, end), or advance its stream time, or flush, or let go what a
    new configuration no longer holds. `epoch`: the leader epoch of what was read before `start`; -1: not known.
    `raised`: how the log counts the input's offsets.
    """

    partition: int
    action: Action
    start: int
    end: int
    stream_time: int
    advance_to: int
    wanted: Wanted
    producer: Producer | None
    table: TablePlan | None = None
    hold: Hold | None = None
    epoch: int = -1
    raised: Raised = ()


@dataclass(frozen=True, kw_only=True)
class PartitionResult:
    """What one partition did: where it stands now; its files and open transaction wait for the decision.

    `recovery` and `replica` say how its state, and the table that it reads, came to what the batch needs.
    """

    partition: int
    action: Action
    next_offset: int
    stream_time: int
    counts: Counts
    measures: dict[str, int]
    files: tuple[DataFile, ...]
    producer: Producer | None
    stopped_at: int | None = None
    stop_reason: str = ""
    floor: int | None = None
    needs: int | None = None
    recovery: str = ""
    replica: str = ""
    epoch: int = -1
    seconds: dict[str, float] = field(default_factory=dict)


class Returned(NamedTuple):
    """What became of a local state on its way back: how it came, in how many seconds, or why it has to be rebuilt."""

    partition: int
    ready: bool
    how: str
    seconds: float


@dataclass(frozen=True, kw_only=True)
class PartitionFailure:
    """Why one partition could not finish; the attempt has failed with it."""

    partition: int
    error: TidegateError
    trace: str
