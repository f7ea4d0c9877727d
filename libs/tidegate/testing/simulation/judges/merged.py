"""The oracle of an operator that reads several topics, which merges them one record at a time."""

from __future__ import annotations

from tidegate.contracts.batch_metadata import BatchMeta
from tidegate.contracts.records import Row
from tidegate.testing.simulation.judges.joined import ReaderOracle, TableOracle
from tidegate.testing.simulation.judges.oracle import Oracle, Origins, Violation


class MergingOracle(Oracle):
    """The oracle of an operator that reads several topics."""

    def _read(self, partition: int, before: BatchMeta, meta: BatchMeta) -> list[Row]:
        """Return the records of all topics, numbered in turn. Raise Violation if a topic has got ahead of another."""
        topics = list(self.inputs_by_topic)
        was = [before.readings(topic)[partition] for topic in topics]
        now = [meta.readings(topic)[partition] for topic in topics]
        left = [
            [row for offset, row in sorted(self.inputs_by_topic[topic][partition].items()) if start <= offset < end]
            for topic, (start, *_), (end, *_) in zip(topics, was, now, strict=True)
        ]
        reached, next_offsets, found = [each.reached for each in was], [each.next_offset for each in was], list[Row]()
        self._came_from = dict[int, tuple[str, int]]()
        while any(left):
            places = {port: max(reached[port], rows[0].timestamp) for port, rows in enumerate(left) if rows}
            port = min(places, key=lambda each: (places[each], each))
            row, reached[port] = left[port].pop(0), places[port]
            next_offsets[port] = row.offset
            number = sum(next_offsets)
            found.append(row._replace(port=port if self._config.streams > 1 else 0, offset=number))
            self._came_from[number + self._reused_offsets[partition]] = (topics[port], row.offset)
            next_offsets[port] += 1
        if reached != [each.reached for each in now]:
            raise Violation(f"times {now} of partition {partition}, must be {reached}")
        return found

    def _origins(self, partition: int) -> Origins:
        return self._came_from.__getitem__


class MergingTableOracle(MergingOracle, TableOracle):
    """The oracle of a table of several topics."""


class MergingReaderOracle(MergingOracle, ReaderOracle):
    """The oracle of an operator that reads several topics, and tables."""
