"""The messages between the driver and the tasks of one attempt.

All of them are small and picklable: places, numbers and names. Records and rows never pass through the driver.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, NamedTuple

from tidegate.contracts.batch_metadata import Counts, Raised, Reading
from tidegate.contracts.config.rules import OperatorRules
from tidegate.contracts.errors import TidegateError
from tidegate.contracts.event_time import ALWAYS, NO_STREAM_TIME
from tidegate.runtime.environment import REAL, Environment
from tidegate.runtime.kafka.client import TopicMetadata
from tidegate.runtime.kafka.transactions import Producer
from tidegate.runtime.publishing.encoding import Opened
from tidegate.runtime.publishing.topics import OutputRoute
from tidegate.state.delta_log.data_files import DataFile
from tidegate.state.lake.port import Lake
from tidegate.state.protocol_decisions import RecoveryPlan, Wanted

Action = Literal["batch", "idle", "flush", "apply"]


@dataclass(frozen=True, kw_only=True)
class Attempt:
    """One attempt at a batch: what is the same for all of its partitions.

    `topic`: the name of the input in the log. `log` at `version`, in format `log_format`: the operator's Delta table
    (a lake is pickled as its place). `state`: the folder of the local states. `attempt`: a random id. `clock`: the wall
    clock that the driver read for the batch, ms.
    `environment`: the one that the driver runs in.
    """

    operator: str
    config: OperatorRules
    topic: str
    log: Lake
    version: int
    log_format: int
    table_id: str
    state: Path
    epoch: int
    batch: int
    attempt: str
    clock: int
    environment: Environment = REAL


@dataclass(frozen=True, kw_only=True)
class KafkaAttempt(Attempt):
    """An attempt that reads and writes Kafka topics.

    `further`: the input topics after the first one. `route`: how its output is published. `max_batch_bytes`: how much
    input each partition reads at most.
    """

    kafka: dict[str, str]
    route: OutputRoute
    max_batch_bytes: int
    deadline_s: float
    further: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class TablePlan:
    """One partition of the table that an operator reads, as of the Delta version that the batch is pinned to.

    `name`: the name of the replica's folder. `wanted`: the commit of the table's log that the replica is to equal.
    `tail`: the state files added by the commits of its lineage. `floor`: the event time from which on all versions are
    kept; None if the log does not have it. `open_until`: the event time up to which held records may be released.
    """

    name: str
    config: OperatorRules
    log: Lake
    version: int
    table_id: str
    stream_time: int
    wanted: Wanted
    tail: tuple[DataFile, ...]
    floor: int | None = None
    open_until: int = ALWAYS


class Hold(NamedTuple):
    """What a table keeps for its readers: versions from event time `needs` on. Those before `floor` are gone."""

    floor: int
    needs: int


class InputRange(NamedTuple):
    """The offsets [start, end) of an input topic that a partition reads in a batch.

    `epoch`: the leader epoch of the last record before `start`; -1: not known. `reached`: the largest timestamp before
    `start`, if the operator reads several topics.
    """

    topic: str
    start: int
    end: int
    epoch: int = -1
    reached: int = NO_STREAM_TIME


@dataclass(frozen=True, kw_only=True)
class PartitionPlan:
    """The work of one partition in a batch.

    `action`: read the records of its ranges (`batch`), advance stream time (`idle`), release all held records
    (`flush`), or release those that a new configuration no longer holds (`apply`). `start`, `end`, `epoch` and
    `reached`: the range of the input, or of the first of its topics; `further`: the ranges of the others. `raised`:
    where the log's offsets differ from those of the input. `tables`: by name those that the operator reads.
    """

    partition: int
    action: Action
    start: int
    end: int
    stream_time: int
    advance_to: int
    wanted: Wanted
    producer: Producer | None
    tables: Mapping[str, TablePlan] = field(default_factory=dict)
    hold: Hold | None = None
    epoch: int = -1
    raised: Raised = ()
    reached: int = NO_STREAM_TIME
    further: tuple[InputRange, ...] = ()

    @property
    def size(self) -> int:
        """Return how many offsets there are to read."""
        return self.end - self.start + sum(each.end - each.start for each in self.further)


@dataclass(frozen=True, kw_only=True)
class PartitionResult:
    """The result of one partition's work. Its files and open transaction do not count before the driver commits.

    `next_offset`, `epoch`, `reached`: how far the input was read, or the first of its topics; `further`: the others.
    `topics`: the topics that were read and written, as they were after that; one result of a task has them, and its
    files. `transaction`: the open transaction with its output, which partitions of a task share; None without output.
    `ledger`: of a pipeline, what became of the rows at each step. `needs` and `reader_time` are by table. `recovery`
    and `replicas`: how its local state, and its replica of each table, were brought to what the batch needs.
    """

    partition: int
    action: Action
    next_offset: int
    stream_time: int
    counts: Counts
    measures: dict[str, int]
    files: tuple[DataFile, ...]
    transaction: Opened | None
    topics: Mapping[str, TopicMetadata] | None = None
    stopped_at: int | None = None
    stopped_by: str = ""
    floor: int | None = None
    needs: Mapping[str, int] = field(default_factory=dict)
    reader_time: Mapping[str, int] = field(default_factory=dict)
    recovery: RecoveryPlan | None = None
    replicas: Mapping[str, RecoveryPlan] = field(default_factory=dict)
    epoch: int = -1
    reached: int = NO_STREAM_TIME
    further: Mapping[str, Reading] = field(default_factory=dict)
    ledger: Mapping[str, Counts] = field(default_factory=dict)
    seconds: dict[str, float] = field(default_factory=dict)


class RecoveryOutcome(NamedTuple):
    """The outcome of the recovery of a local state.

    `ready`: it was recovered by this plan, in `seconds`; otherwise the plan is to rebuild it.
    """

    partition: int
    ready: bool
    plan: RecoveryPlan
    seconds: float


@dataclass(frozen=True, kw_only=True)
class PartitionFailure:
    """The error of one partition's work, with which the whole attempt has failed."""

    partition: int
    error: TidegateError
    trace: str
