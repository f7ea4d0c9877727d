"""Publishing on the driver's side: producers, marks, settling, ending. May import: contracts, runtime.kafka, state.

The rules are those of `docs/protocol.md`: what has been published is said by the mark in Kafka, never assumed; after
anything unclear the next request for a transactional id is InitProducerId.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence

import pyarrow as pa
import pyarrow.compute as pc

from tidegate.contracts.config import AddedWindows
from tidegate.contracts.errors import StartOver, StateError
from tidegate.contracts.kill_points import armed, reach
from tidegate.contracts.naming import group_id, transactional_id
from tidegate.contracts.schema import BatchMeta
from tidegate.runtime.kafka.client import KafkaClient
from tidegate.runtime.kafka.offsets import marks, newest_batch_header
from tidegate.runtime.kafka.transactions import Producer, commit_offset, end, ends, initialise
from tidegate.runtime.outlets import Outlets, published_kinds
from tidegate.runtime.output import Destination, Rows, open_output
from tidegate.state.decisions import Settling, format_mark, parse_mark, unpublished, unpublished_above
from tidegate.state.operator_log import OperatorLog


class Publication:
    """The output side of one operator: one transactional id per partition."""

    def __init__(
        self,
        client: Callable[[], KafkaClient],
        log: OperatorLog,
        *,
        application: str,
        operator: str,
        input: str,
        outlets: Outlets,
        times_in_values: bool,
        windows: AddedWindows | None,
        deadline_s: float,
    ) -> None:
        self._client, self._log = client, log
        self._application, self._operator = application, operator
        self._input, self._outlets = input, outlets
        self._times_in_values, self._windows = times_in_values, windows
        self._deadline_s = deadline_s
        self._timeout_ms = max(60_000, int(3 * deadline_s * 1_000))
        self.group = group_id(application, operator)
        self.limits = {topic: client().max_message_bytes(topic) for topic in outlets.topics}
        self.producers: dict[int, Producer] = {}
        self.unclear: set[int] = set()
        self._shown: dict[int, int] = {}
        self._shown_at = time.monotonic()

    def start(self, partitions: Iterable[int], newest: BatchMeta) -> None:
        """Older drivers are fenced, what they left open is aborted, and everything committed is published."""
        for count, partition in enumerate(partitions):
            if count == 1:
                reach("between_initialisations")
            self._initialise(partition, None)
        self.settle(self.producers, newest)

    def settle(self, partitions: Iterable[int], newest: BatchMeta) -> None:
        """The output of every committed batch of the partitions is published, judged by the marks.

        StateError for a mark that contradicts the log; StartOver where the log has gone on without this driver.
        """
        wanted = list(partitions)
        found = marks(self._client(), self.group, self._input, wanted)
        for partition in wanted:
            committed = found.get(partition)
            mark = committed.metadata if committed is not None else None
            self._shown[partition] = committed.offset if committed is not None else -1
            try:
                batch = self._left_to_publish(partition, mark, newest)
            except StateError as contradiction:
                self._notice_successor(contradiction)
                raise
            if batch is not None:
                self._publish_again(partition, batch, newest)

    def end(self, producers: Mapping[int, Producer], newest: BatchMeta) -> None:
        """The open transactions of a committed batch are committed in Kafka, or cleared up by the marks."""
        self.unclear.update(producers)
        for wave in self._waves(list(producers)):
            opened = [producers[partition] for partition in wave]
            answers = ends(self._client(), opened, commit=True, deadline_s=self._deadline_s)
            for partition, answer in zip(wave, answers, strict=True):
                if isinstance(answer, Producer):
                    self.producers[partition] = answer
                    self._shown[partition] = newest.offsets[self._input][partition]
                    self.unclear.discard(partition)
            reach("between_ends")
        self.clear_up(newest)

    def show(self, newest: BatchMeta, *, every_s: float = 0.0) -> None:
        """The group's offsets are the log's, so that ordinary tools tell the lag, unless it is too soon for that.

        Where nothing was emitted, a transaction without output carries the offset, and the mark with it.
        """
        reached = newest.offsets[self._input]
        behind = [
            partition
            for partition in self.producers
            if self._shown.get(partition) != reached[partition]
            and partition not in self.unclear  # what a failed attempt has left open would be committed with it
        ]
        if not behind or time.monotonic() < self._shown_at + every_s:
            return
        self._shown_at = time.monotonic()
        self.abandon(behind)  # until they are ended
        self.end({partition: self._offset_alone(partition, newest) for partition in behind}, newest)

    def _offset_alone(self, partition: int, newest: BatchMeta) -> Producer:
        return commit_offset(
            self._client(),
            self.producers[partition],
            self.group,
            self._input,
            partition,
            newest.offsets[self._input][partition],
            format_mark(newest.table_id, newest.batch),
            deadline_s=self._deadline_s,
        )

    def abandon(self, partitions: Iterable[int]) -> None:
        """What the partitions have open is not to be committed; nothing else is sent before it is cleared up."""
        if self.producers:
            self.unclear.update(partitions)

    def let_go(self, partitions: Sequence[int]) -> None:
        """What the partitions have open is aborted; what is committed of it is still to be published."""
        self.abandon(partitions)
        for partition in partitions:
            self._initialise(partition, self.producers[partition])

    def clear_up(self, newest: BatchMeta) -> None:
        """Nothing is unclear: whatever was open is aborted, what is committed in the log is published.

        Raises Fenced after a takeover, EngineError while Kafka does not answer (then it is still unclear).
        """
        for partition in sorted(self.unclear):
            self._initialise(partition, self.producers[partition])
            self.settle([partition], newest)
            self.unclear.discard(partition)

    def _waves(self, partitions: list[int]) -> list[list[int]]:
        """All ends at once; the kill point between two of them needs them one after the other."""
        return [[partition] for partition in partitions] if armed("between_ends") else [partitions]

    def _initialise(self, partition: int, current: Producer | None) -> None:
        name = transactional_id(self._application, self._operator, partition)
        self.producers[partition] = initialise(self._client(), name, timeout_ms=self._timeout_ms, current=current)

    def _left_to_publish(self, partition: int, mark: str | None, newest: BatchMeta) -> int | None:
        """The batch whose output is committed and not published; None when there is none."""
        known = parse_mark(mark) if mark is not None else None
        outputs = self._outputs(partition, known.batch if known else -1, newest)
        decision = unpublished(mark, table_id=newest.table_id, newest_batch=newest.batch, outputs=outputs)
        if decision.what is Settling.RESOLVE:
            decision = unpublished_above(self._newest_in_topics(partition, newest), outputs)
        return decision.batch

    def _outputs(self, partition: int, after_batch: int, newest: BatchMeta) -> list[int]:
        """The batches above that one with something to publish, none from before that was configured; ascending."""
        found = [
            self._log.batches(kind, partition, after_batch=max(after_batch, since - 1))
            for kind, since in published_kinds(self._outlets, newest).items()
        ]
        return sorted({batch for batches in found for batch in batches})

    def _newest_in_topics(self, partition: int, newest: BatchMeta) -> int:
        """The newest batch that the headers of the outlets' records name; -1: none."""
        published = -1
        for topic in self._outlets.topics:
            found = newest_batch_header(self._client(), topic, partition, self._operator)
            if found is not None and found > newest.batch:
                raise StateError(
                    f"{topic}/{partition} holds a batch of {self._operator} that this log has not reached",
                    value=f"batch {found} in the topic, {newest.batch} in the log",
                    remedy="was the log begun anew? Give the operator another name or topics of its own",
                )
            published = published if found is None else max(published, found)
        return published

    def _notice_successor(self, contradiction: StateError) -> None:
        """Nothing, if the newest commit is this driver's: else a successor has fenced it in between, and published."""
        if self._log.has_successor():
            raise StartOver(
                "a newer driver has published", value=contradiction.value, remedy="the claim tells"
            ) from contradiction

    def _publish_again(self, partition: int, batch: int, newest: BatchMeta) -> None:
        kinds = published_kinds(self._outlets, newest)
        rows = Rows(
            *(
                self._rows(kind, partition, batch, kinds.get(kind, batch + 1))
                for kind in ("emission", "late", "rejected")
            )
        )
        destination = Destination(
            operator=self._operator,
            input=self._input,
            outlets=self._outlets,
            limits=self.limits,
            times_in_values=self._times_in_values,
            windows=self._windows,
            group=self.group,
            table_id=newest.table_id,
            partition=partition,
            batch=batch,
            next_offset=newest.offsets[self._input][partition],
            deadline_s=self._deadline_s,
        )
        opened = open_output(self._client(), self.producers[partition], destination, rows)
        reach("in_settling_before_end")
        self.producers[partition] = end(self._client(), opened, commit=True, deadline_s=self._deadline_s)
        reach("in_settling_after_end")

    def _rows(self, kind: str, partition: int, batch: int, since: int) -> pa.Table:
        """The batch's rows of the kind; none if it is from before `since`."""
        return self._log.read(kind, partition, after_batch=max(batch, since) - 1).filter(pc.field("batch") == batch)
