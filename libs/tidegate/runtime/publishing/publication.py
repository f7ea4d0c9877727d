"""The driver's side of publishing: producers, marks, the end of transactions, and output left unpublished.

The rules are those of `docs/protocol.md`. What has been published is read from the mark in Kafka, never assumed. After
any unclear outcome the next request for a transactional id is InitProducerId.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

import pyarrow as pa

from tidegate.contracts.batch_metadata import BatchMeta, Ends, Outcome
from tidegate.contracts.clock import SYSTEM_CLOCK, Clock
from tidegate.contracts.config.operator_config import Output
from tidegate.contracts.errors import StartOver, StateError, TidegateError, Undecided
from tidegate.contracts.kill_points import armed, reach
from tidegate.contracts.naming import transactional_id
from tidegate.runtime.kafka.client import KafkaClient
from tidegate.runtime.kafka.offsets import committed_offsets, earliest, newest_batch_header
from tidegate.runtime.kafka.transactions import Producer, commit_offsets, end, end_all, init_producer
from tidegate.runtime.publishing.encoding import (
    Destination,
    Opened,
    PartitionOutput,
    Rows,
    emissions_for,
    open_output,
    output_partitions,
    prepare_output,
)
from tidegate.runtime.publishing.topics import OutputRoute, Published, published_rows
from tidegate.runtime.threads import Parallel
from tidegate.state.delta_log.operator_log import OperatorLog
from tidegate.state.protocol_decisions import (
    PublishAction,
    PublishDecision,
    Tail,
    decide_from_topics,
    format_mark,
    parse_mark,
    unpublished,
)

RENEWALS = 4
"""How often a mark is committed again within the brokers' retention of offsets."""
CONNECTIONS = 4
"""In how many shares the transactions of a batch are ended: a broker ends those of one connection one after the other.
"""
CLOSE_TIMEOUT_S = 5.0
"""How long a driver that is about to end waits for a broker's answer."""
UNKNOWN_RETENTION_S = 86_400.0
"""Retention of offsets that is assumed if the brokers deny access to the setting: the default of old Kafka versions."""


class Publication:
    """The output side of one operator: one transactional id per partition."""

    def __init__(
        self,
        client: Callable[[], KafkaClient],
        log: OperatorLog,
        *,
        application: str,
        route: OutputRoute,
        deadline_s: float,
        clock: Clock = SYSTEM_CLOCK,
        in_parallel: Parallel = map,
    ) -> None:
        self._client, self._log, self.route, self._clock = client, log, route, clock
        self._application, self._operator = application, route.operator
        self._input, self._outlets = route.input, route.outlets
        self._deadline_s, self._in_parallel = deadline_s, in_parallel
        # rule: transaction-timeout
        self._timeout_ms = max(60_000, int(3 * deadline_s * 1_000))
        self.producers: dict[int, Producer] = {}
        self.unclear: set[int] = set()
        self._committed_offsets: dict[int, int] = {}
        self._marked_at: dict[int, float] = {}
        # rule: mark-renewed/interval
        self._renew_after_s = (client().offset_retention_s(route.group) or UNKNOWN_RETENTION_S) / RENEWALS
        self._offsets_committed_at = self._clock.monotonic()

    def start(self, partitions: Iterable[int], newest: BatchMeta) -> None:
        """Fence older drivers, abort their open transactions, and publish committed output that was not published."""
        for count, partition in enumerate(partitions):
            if count == 1:
                # rule: kill-points
                reach("between_initialisations")
            # rule: ids-before-marks
            self._initialise(partition, None)
        # rule: start-publishes
        self.settle(self.producers, newest)

    def settle(self, partitions: Iterable[int], newest: BatchMeta) -> None:
        """Publish the output of committed batches that, by the marks, is not published yet.

        The marks of all partitions are read at once, so all their ids must have been initialised before. A partition is
        not unclear any more when its output is known to be published.

        Raise StateError if a mark contradicts the log, Undecided if it is unknown whether the newest output was
        published, and StartOver if another driver has committed to the log meanwhile.
        """
        undecided = dict[int, int]()
        for partition, (what, batch) in self._decisions(partitions, newest):
            # rule: publish-above-mark/published
            if batch is not None and what is PublishAction.PUBLISH:
                self._publish_again(partition, batch, newest)
            elif batch is not None:
                undecided[partition] = batch
                continue
            self.unclear.discard(partition)
        if undecided:
            raise self._undecided(undecided)

    def undecided(self, newest: BatchMeta) -> dict[int, int]:
        """Return {partition: batch} of the newest output, where it is unknown whether that was published."""
        decisions = self._decisions(newest.partitions, newest)
        return {p: batch for p, (what, batch) in decisions if what is PublishAction.ASK and batch is not None}

    def unsettled(self, newest: BatchMeta) -> dict[int, int]:
        """Return {partition: batch} of the newest output that, as far as Kafka shows, may not be published."""
        return {p: batch for p, (_what, batch) in self._decisions(newest.partitions, newest) if batch is not None}

    def _decisions(self, partitions: Iterable[int], newest: BatchMeta) -> Iterator[tuple[int, PublishDecision]]:
        """Read the marks, then yield the decision for one partition after the other."""
        wanted = list(partitions)
        found = committed_offsets(self._client(), self.route.group, self._input, wanted)
        for partition in wanted:
            committed = found.get(partition)
            # rule: mark-by-batch
            mark = committed.metadata if committed is not None else None
            alone = committed is not None and not newest.partitions[partition].further
            self._committed_offsets[partition] = committed.offset if committed is not None and alone else -1
            # rule: mark-renewed/found
            self._marked_at[partition] = -math.inf  # the time of that commit is unknown
            try:
                yield partition, self._left_to_publish(partition, mark, newest)
            except StateError as contradiction:
                # rule: mark-by-current-log
                self._notice_successor(contradiction)
                raise

    def add_marks(self, opened: Opened, offsets: Ends, batch: int) -> Opened | TidegateError:
        """Add the marks of the batch and the offsets reached to an open transaction; return it, or why that failed.

        May be called beside other work with the operator. A transaction that failed must be aborted, never committed.
        """
        try:
            return self._with_marks(opened, offsets, batch)
        except TidegateError as error:
            return error

    def end(self, opened: Sequence[Opened], newest: BatchMeta) -> None:
        """Commit the open transactions of a committed batch in Kafka. Clear up those whose outcome is unclear."""
        # rule: init-after-unclear-end
        self.unclear.update(partition for each in opened for partition in each.partitions)
        for wave in self._waves(opened):
            answers = self._end_in_shares([each.producer for each in wave])
            for (_, partitions), answer in zip(wave, answers, strict=True):
                if isinstance(answer, Producer):
                    self.producers[partitions[0]] = answer
                    self._note_marked(partitions, newest)
            # rule: kill-points
            reach("between_ends")
        self.clear_up(newest)

    def _note_marked(self, partitions: Iterable[int], newest: BatchMeta) -> None:
        for partition in partitions:
            self._committed_offsets[partition] = newest.partitions[partition].position
            self._marked_at[partition] = self._clock.monotonic()
            self.unclear.discard(partition)

    def commit_offsets(self, newest: BatchMeta, *, every_s: float = 0.0) -> None:
        """Commit the log's offsets to the consumer group, so that ordinary tools show the lag.

        Do nothing if the last such commit was less than `every_s` ago. Partitions without output get a transaction
        with offsets and marks alone. So marks of quiet partitions are renewed long before brokers expire them.
        """
        known, now = newest.partitions, self._clock.monotonic()
        # rule: mark-renewed/committed
        behind = [
            partition
            for partition in self.producers
            if (self._committed_offsets.get(partition) != known[partition].position or self._is_old(partition, now))
            and partition not in self.unclear  # the open transaction of a failed attempt would be committed, too
        ]
        if not behind or now < self._offsets_committed_at + every_s:
            return
        self._offsets_committed_at = now
        self.mark_unclear(behind)  # unclear until these transactions have ended
        alone = Opened(self.producers[behind[0]], tuple(behind))
        self.end([self._with_marks(alone, newest.read_to, newest.batch)], newest)

    def _is_old(self, partition: int, now: float) -> bool:
        """Return whether the partition's mark is due to be committed again."""
        return now >= self._marked_at.get(partition, -math.inf) + self._renew_after_s

    def _with_marks(self, opened: Opened, offsets: Ends, batch: int) -> Opened:
        """Add the marks of the batch and the offsets reached to the transaction, which is opened if it is not yet.

        Of several input topics the first one's offsets have the marks.
        """
        # rule: mark-with-output
        mark = format_mark(self._log.table_id, batch)
        reached = {
            topic: {p: (own[p], mark if topic == self._input else "") for p in opened.partitions}
            for topic, own in offsets.items()
        }
        producer = commit_offsets(
            self._client(), opened.producer, self.route.group, reached, deadline_s=self._deadline_s
        )
        return opened._replace(producer=producer)

    def mark_unclear(self, partitions: Iterable[int]) -> None:
        """Count the partitions' transactions as unclear: abort them before anything else is sent, never commit."""
        if self.producers:
            self.unclear.update(partitions)

    def abort(self, partitions: Sequence[int]) -> None:
        """Abort the partitions' open transactions. Their output that the log contains must still be published."""
        # rule: abort-at-end
        self.mark_unclear(partitions)
        for partition in partitions:
            self._initialise(partition, self.producers[partition])

    def close(self, newest: BatchMeta) -> None:
        """Abort the open transactions and commit the log's offsets. Raise EngineError if Kafka does not answer."""
        self._client().probe(CLOSE_TIMEOUT_S)
        # rule: abort-at-end
        self.abort(sorted(self.unclear))
        self.commit_offsets(newest)

    def published(self, newest: BatchMeta) -> Mapping[int, int] | None:
        """Return per partition the newest batch with output, which is published unless the partition is unclear."""
        return {partition: known.output_batch for partition, known in newest.partitions.items()}

    def clear_up(self, newest: BatchMeta) -> None:
        """Abort the transactions of all unclear partitions, and publish what the log has committed of them.

        Raise Fenced after a takeover; EngineError while Kafka does not answer (the rest then stays unclear).
        """
        unclear = sorted(self.unclear)
        # rule: all-aborted-before-marks
        for partition in unclear:
            # rule: init-after-unclear-end, takeover-at-start
            self._initialise(partition, self.producers[partition])
        if unclear:
            # rule: mark-after-timeout
            self.settle(unclear, newest)

    def _waves(self, opened: Sequence[Opened]) -> list[Sequence[Opened]]:
        """Return all transactions as one wave; one by one if the kill point between two of their ends is armed."""
        # rule: ends-together
        return [[each] for each in opened] if armed("between_ends") else [opened]

    def _end_in_shares(self, opened: Sequence[Producer]) -> list[Producer | TidegateError]:
        """Commit the transactions, in shares with a connection each, and return what `end_all` returns."""
        size = max(1, math.ceil(len(opened) / CONNECTIONS))
        shares = [opened[first : first + size] for first in range(0, len(opened), size)]
        answers = self._in_parallel(
            lambda share: end_all(self._client(), share, commit=True, deadline_s=self._deadline_s), shares
        )
        return [answer for share in answers for answer in share]

    def _initialise(self, partition: int, current: Producer | None) -> None:
        name = transactional_id(self._application, self._operator, partition)
        self.producers[partition] = init_producer(self._client(), name, timeout_ms=self._timeout_ms, current=current)

    def _left_to_publish(self, partition: int, mark: str | None, newest: BatchMeta) -> PublishDecision:
        """Decide what to do about a batch whose output is committed to the log and perhaps not published."""
        known = parse_mark(mark) if mark is not None else None
        after = known.batch if known else newest.partitions[partition].output_batch - 1
        outputs = self._outputs(partition, after, newest)
        decision = unpublished(mark, table_id=newest.table_id, newest_batch=newest.batch, outputs=outputs)
        if decision.what is not PublishAction.RESOLVE:
            return decision
        # rule: absent-mark-newest-output/asked
        decision = decide_from_topics(outputs[-1], self._topic_ends(partition, outputs[-1], newest))
        said = newest.settled.get(partition)
        if decision.what is PublishAction.ASK and said is not None and said.batch == decision.batch:
            # rule: absent-mark-person-decides/answer
            return (
                PublishDecision(PublishAction.NOTHING)
                if said.outcome is Outcome.PUBLISHED
                else PublishDecision(PublishAction.PUBLISH, decision.batch)
            )
        return decision

    def _outputs(self, partition: int, after_batch: int, newest: BatchMeta) -> list[int]:
        """Return the batches above `after_batch` with output to publish, ascending.

        Rows of batches from before their topic was configured do not count.
        """
        # rule: publish-from-configured/outputs
        found = [
            self._log.batches(each.kind, partition, after_batch=max(after_batch, each.since - 1), step=each.step)
            for each in published_rows(self._outlets, newest)
        ]
        return sorted({batch for batches in found for batch in batches})

    def _topic_ends(self, partition: int, batch: int, newest: BatchMeta) -> list[Tail]:
        """Look for the batch at the end of each output partition where it may be."""
        rows = published_rows(self._outlets, newest)
        written = {each.topic for each in rows if self._has(each, partition, batch)}
        by_keys = {each.topic: each for each in self._outlets.outputs if each.partitions is not None}
        own = [
            self._topic_end(topic, partition, newest, written=topic in written)
            for topic in self._outlets.topics
            if topic not in by_keys
        ]
        # rule: absent-mark-by-keys
        return own + [
            self._topic_end(topic, place, newest, written=True, of_input=partition)
            for topic in sorted(by_keys.keys() & written)
            for place in self._places_by_key(by_keys[topic], partition, batch)
        ]

    def _places_by_key(self, output: Output, partition: int, batch: int) -> list[int]:
        """Return the partitions of the topic that the batch's records of this input partition are written to."""
        assert output.partitions is not None
        _, emissions = emissions_for(output, self._rows("emission", partition, batch, True))
        return sorted({*output_partitions(emissions["key"], output.partitions, partition).tolist()})

    def _topic_end(
        self, topic: str, partition: int, newest: BatchMeta, *, written: bool, of_input: int | None = None
    ) -> Tail:
        # rule: absent-mark-by-headers
        found = newest_batch_header(self._client(), topic, partition, self._operator, of_input)
        # rule: headers-above-log
        if found is not None and found > newest.batch:
            raise StateError(
                f"{topic}/{partition} holds a batch of {self._operator} that this log has not reached",
                value=f"batch {found} in the topic, {newest.batch} in the log",
                remedy="if the log was created again, give the operator a new name or its own topics",
            )
        # rule: absent-mark-person-decides/whole
        begun = found is not None or earliest(self._client(), topic)[partition] == 0
        # rule: absent-mark-person-decides/compacted
        return Tail(found, written and begun and not self._client().is_compacted(topic))

    def _has(self, rows: Published, partition: int, batch: int) -> bool:
        return batch in self._log.batches(rows.kind, partition, after_batch=batch - 1, up_to=batch, step=rows.step)

    def _undecided(self, batches: Mapping[int, int]) -> Undecided:
        return Undecided(
            f"it is unknown whether the newest output of {self._operator} was published: its mark has expired, and "
            "the topic may no longer have it",
            value=", ".join(f"partition {partition}: batch {batch}" for partition, batch in sorted(batches.items())),
            remedy=f"find out whether readers have it; then run tidegate settle FILE {self._operator} --published, or "
            "--unpublished to publish it",
        )

    def _notice_successor(self, contradiction: StateError) -> None:
        """Raise StartOver if another driver has committed to the log: that one has published, so the mark is newer."""
        if self._log.has_successor():
            raise StartOver(
                "a newer driver has published", value=contradiction.value, remedy="claim the operator again"
            ) from contradiction

    def _publish_again(self, partition: int, batch: int, newest: BatchMeta) -> None:
        # rule: publish-from-configured/rows
        wanted = [each for each in published_rows(self._outlets, newest) if each.since <= batch]
        topics, kinds = {each.topic for each in wanted}, {each.kind for each in wanted}
        rows = Rows(*(self._rows(kind, partition, batch, kind in kinds) for kind in ("emission", "late", "rejected")))
        # rule: output-repeatable/batch
        destination = Destination(
            route=replace(self.route, outlets=self._outlets.within(topics)),
            partition=partition,
            batch=batch,
            raised=newest.partitions[partition].raised,
        )
        prepared = prepare_output([PartitionOutput(self.producers[partition], destination, rows)])
        opened = None if prepared is None else open_output(self._client(), prepared, self._deadline_s)
        if opened is not None:
            opened = self._with_marks(opened, newest.read_to, batch)
        # rule: kill-points
        reach("in_settling_before_end")
        if opened is not None:
            self.producers[partition] = end(self._client(), opened.producer, commit=True, deadline_s=self._deadline_s)
        reach("in_settling_after_end")

    def _rows(self, kind: str, partition: int, batch: int, wanted: bool) -> pa.Table:
        """Return the batch's rows of the kind; no rows unless they are wanted."""
        # rule: output-repeatable/order
        return self._log.read(kind, partition, after_batch=batch - 1, up_to=batch if wanted else batch - 1)


@dataclass(frozen=True, kw_only=True)
class NoPublication:
    """The output side of an operator that writes no topic: its output stays in the lake; nothing is ever unclear."""

    route: OutputRoute
    producers: Mapping[int, Producer] = field(default_factory=dict)
    unclear: frozenset[int] = frozenset()

    def add_marks(self, opened: Opened, offsets: Ends, batch: int) -> Opened | TidegateError:
        """Return the transaction; there is none."""
        return opened

    def end(self, opened: Sequence[Opened], newest: BatchMeta) -> None:
        """Do nothing: there are no transactions."""

    def commit_offsets(self, newest: BatchMeta, *, every_s: float = 0.0) -> None:
        """Do nothing: an operator without output commits no offsets."""

    def mark_unclear(self, partitions: Iterable[int]) -> None:
        """Do nothing."""

    def abort(self, partitions: Sequence[int]) -> None:
        """Do nothing."""

    def clear_up(self, newest: BatchMeta) -> None:
        """Do nothing."""

    def close(self, newest: BatchMeta) -> None:
        """Do nothing, and ask no broker."""

    def published(self, newest: BatchMeta) -> Mapping[int, int] | None:
        """Return None: compactions need not spare output that is not published yet."""
        return None
