"""Publishing on the driver's side: producers, marks, settling, ending. May import: contracts, runtime.kafka, state.

The rules are those of `docs/protocol.md`: what has been published is said by the mark in Kafka, never assumed; after
anything unclear the next request for a transactional id is InitProducerId.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from tidegate.contracts.errors import EngineError
from tidegate.contracts.kill_points import reach
from tidegate.contracts.naming import group_id, transactional_id
from tidegate.contracts.schema import BatchMeta
from tidegate.runtime.kafka.client import KafkaClient
from tidegate.runtime.kafka.offsets import marks, newest_batch_header
from tidegate.runtime.kafka.transactions import Producer, end, initialise
from tidegate.runtime.output import Destination, open_output
from tidegate.state.decisions import Publish, Unresolved, unpublished
from tidegate.state.operator_log import OperatorLog


class Publication:
    """The output side of one operator: one transactional id per partition."""

    def __init__(
        self,
        client: KafkaClient,
        log: OperatorLog,
        *,
        application: str,
        operator: str,
        input: str,
        output: str,
        deadline_s: float,
    ) -> None:
        self._client, self._log = client, log
        self._application, self._operator = application, operator
        self._input, self._output = input, output
        self._deadline_s = deadline_s
        self._timeout_ms = max(60_000, int(3 * deadline_s * 1_000))
        self.group = group_id(application, operator)
        self.output_limit = client.max_message_bytes(output)
        self.producers: dict[int, Producer] = {}

    def start(self, partitions: Iterable[int], newest: BatchMeta) -> None:
        """Older drivers are fenced, what they left open is aborted, and everything committed is published."""
        for count, partition in enumerate(partitions):
            if count == 1:
                reach("between_initialisations")
            self._initialise(partition, None)
        self.settle(self.producers, newest)

    def settle(self, partitions: Iterable[int], newest: BatchMeta) -> None:
        """The output of every committed batch of the partitions is published, judged by the marks."""
        wanted = list(partitions)
        found = marks(self._client, self.group, self._input, wanted)
        for partition in wanted:
            committed = found.get(partition)
            mark = committed.metadata if committed is not None else None
            decision = self._judge(mark, partition, newest)
            if isinstance(decision, Publish):
                self._publish_again(partition, decision.batch, newest)

    def end(self, producers: Mapping[int, Producer], newest: BatchMeta) -> None:
        """The open transactions of a committed batch are committed in Kafka; what is unclear is settled by the marks.

        Raises Fenced when another driver owns a transactional id.
        """
        unclear = []
        for count, (partition, producer) in enumerate(producers.items()):
            if count == 1:
                reach("between_ends")
            try:
                self.producers[partition] = end(self._client, producer, commit=True, deadline_s=self._deadline_s)
            except EngineError:
                unclear.append(partition)
        if unclear:
            self.renew(unclear)
            self.settle(unclear, newest)

    def renew(self, partitions: Iterable[int]) -> None:
        """Whatever was open or unclear for the partitions is aborted; each has a fresh producer epoch.

        Raises Fenced after a takeover.
        """
        for partition in partitions:
            self._initialise(partition, self.producers[partition])

    def _initialise(self, partition: int, current: Producer | None) -> None:
        name = transactional_id(self._application, self._operator, partition)
        self.producers[partition] = initialise(self._client, name, timeout_ms=self._timeout_ms, current=current)

    def _judge(self, mark: str | None, partition: int, newest: BatchMeta) -> object:
        output = newest.output.get(partition)
        decision = unpublished(mark, newest.table_id, partition, output, newest.batch, newest.published_from)
        if isinstance(decision, Unresolved):
            header = newest_batch_header(self._client, self._output, partition, self._operator)
            decision = unpublished(
                mark,
                newest.table_id,
                partition,
                output,
                newest.batch,
                newest.published_from,
                header=header,
                resolved=True,
            )
        return decision

    def _publish_again(self, partition: int, batch: int, newest: BatchMeta) -> None:
        rows = self._log.read("emission", partition, after_batch=batch - 1)
        rows = rows.filter(_is(rows, batch))
        destination = Destination(
            operator=self._operator,
            input=self._input,
            output=self._output,
            group=self.group,
            table_id=newest.table_id,
            partition=partition,
            batch=batch,
            next_offset=newest.offsets[self._input][partition],
            output_limit=self.output_limit,
            deadline_s=self._deadline_s,
        )
        opened = open_output(self._client, self.producers[partition], destination, rows)
        reach("in_settling_before_end")
        self.producers[partition] = end(self._client, opened, commit=True, deadline_s=self._deadline_s)
        reach("in_settling_after_end")


def _is(rows: object, batch: int) -> object:
    import pyarrow.compute as pc

    return pc.equal(rows["batch"], batch)  # type: ignore[index]
