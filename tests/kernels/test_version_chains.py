"""The chains of versions against a dict of sorted lists."""

from __future__ import annotations

import bisect
from dataclasses import dataclass, field

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.kernels.collisions import SEED_WORDS, keys_with_equal_fingerprints
from tidegate.contracts.records import Records, Row
from tidegate.kernels import payloads, version_chains
from tidegate.kernels.hash_index import Index, fingerprint
from tidegate.kernels.memory import arena, slots
from tidegate.kernels.memory.arena import Arena
from tidegate.kernels.memory.slots import SlotPool
from tidegate.kernels.payloads import FlatRecords, Payloads
from tidegate.kernels.version_chains import NONE, READABLE_FROM, TIMELESS, LookupScratch, Versions

pytestmark = pytest.mark.fast

SIZE = 512
KEYS = [b"", b"a", b"ab", b"a key of more than eight bytes", *keys_with_equal_fingerprints(2)]
keys = st.sampled_from(KEYS)
times = st.integers(0, 12)
changes = st.lists(st.tuples(keys, times, st.sampled_from(["put", "put", "put", "tombstone", "remove"])), max_size=80)


def blocks(words: int) -> Arena:
    content = np.zeros(words, np.int64)
    return Arena(content.view(np.uint8), content, np.zeros(arena.NUMBERS, np.int64))


def empty(chain_words: int = 64 * SIZE) -> Versions:
    """Versions without a key; READABLE_FROM before all times."""
    int32s, int64s = (lambda: np.zeros(SIZE, np.int32)), (lambda: np.zeros(SIZE, np.int64))
    prints = int64s()
    stored = Payloads(blocks(64 * SIZE), int32s(), int32s(), int32s(), int32s(), int64s(), int64s(), int64s())
    return Versions(
        np.array([-(2**63), 0]),
        Index(np.zeros(2 * SIZE, np.int32), SEED_WORDS.copy()),
        SlotPool(np.zeros(slots.NUMBERS, np.int64), prints),
        prints,
        int32s(),
        int32s(),
        int32s(),
        int32s(),
        blocks(chain_words),
        stored,
    )


@dataclass
class Table:
    """Versions and what they must be: per key its (valid_from, version, is a tombstone), sorted."""

    versions: Versions = field(default_factory=empty)
    model: dict[bytes, list[tuple[int, int, bool]]] = field(default_factory=dict)
    used: int = 0

    def put(self, key: bytes, timestamp: int, tombstone: bool = False) -> None:
        """A version more, unless there is one with that timestamp."""
        chain = self.model.setdefault(key, [])
        at = bisect.bisect_left(chain, (timestamp,))
        if at < len(chain) and chain[at][0] == timestamp:
            return
        version, self.used = self.used, self.used + 1
        row = Records.from_rows([Row(key, None if tombstone else b"v%d" % version, timestamp, version)])
        data = batch(row)
        slot = version_chains.find(self.versions, data.data, 0, len(key))
        room = version_chains.has_room(self.versions, slot, at)
        assert room
        payloads.store(self.versions.payloads, version, data, 0)
        if slot == NONE:
            slot = version_chains.add_key(self.versions, fingerprint(self.versions.key_index, data.data, 0, len(key)))
        assert version_chains.entries_until(self.versions, slot, timestamp) == at
        version_chains.make_room(self.versions, slot, at)
        version_chains.insert(self.versions, slot, at, timestamp, version)
        chain.insert(at, (timestamp, version, tombstone))

    def remove(self, key: bytes, timestamp: int) -> None:
        """The version that is valid at the timestamp is gone, and the key with its last one."""
        chain = self.model.get(key, [])
        at = bisect.bisect_right(chain, (timestamp, SIZE)) - 1
        if at < 0:
            return
        slot = version_chains.find(self.versions, np.frombuffer(key, np.uint8), 0, len(key))
        version_chains.remove(self.versions, slot, at)
        del chain[at]
        if not chain:
            version_chains.drop_key(self.versions, slot)

    def as_of(self, questions: list[tuple[bytes, int]]) -> list[int]:
        """The versions that are found."""
        data = batch(Records.from_rows([Row(key, b"", timestamp, 0) for key, timestamp in questions]))
        scratch, found = LookupScratch(*np.empty((2, len(questions)), np.int64)), np.empty(len(questions), np.int64)
        version_chains.as_of_many(
            self.versions, data.data, data.key_start, data.key_length, data.timestamp, scratch, found
        )
        return found.tolist()


def batch(records: Records) -> FlatRecords:
    return payloads.flat_records(records)


def filled(changes: list[tuple[bytes, int, str]]) -> Table:
    table = Table()
    for key, timestamp, change in changes:
        if change == "remove":
            table.remove(key, timestamp)
        else:
            table.put(key, timestamp, change == "tombstone")
    return table


QUESTIONS = [(key, timestamp) for key in [*KEYS, b"another"] for timestamp in range(-1, 14)]


@given(changes=changes)
def test_a_lookup_finds_the_version_that_was_valid_then_unless_it_is_a_tombstone(
    changes: list[tuple[bytes, int, str]],
) -> None:
    table = filled(changes)

    def expected(key: bytes, timestamp: int) -> int:
        before = [version for version in table.model.get(key, []) if version[0] <= timestamp]
        return before[-1][1] if before and not before[-1][2] else NONE

    assert table.as_of(QUESTIONS) == [expected(*question) for question in QUESTIONS]


@given(changes=changes, readable_from=times)
def test_before_the_readable_time_there_is_only_the_latest_version(
    changes: list[tuple[bytes, int, str]], readable_from: int
) -> None:
    table = filled(changes)
    table.versions.numbers[READABLE_FROM] = readable_from

    def expected(key: bytes, timestamp: int) -> int:
        newest = table.model.get(key, [])[-1:]
        return newest[0][1] if newest and newest[0][0] <= timestamp and not newest[0][2] else NONE

    early = [question for question in QUESTIONS if question[1] < readable_from]
    assert table.as_of(early) == [expected(*question) for question in early]


@given(changes=changes)
def test_a_table_without_times_always_has_its_latest_version(changes: list[tuple[bytes, int, str]]) -> None:
    table = filled(changes)
    table.versions.numbers[TIMELESS] = 1
    newest = {key: chain[-1] for key, chain in table.model.items() if chain}
    expected = [newest[key][1] if key in newest and not newest[key][2] else NONE for key, _ in QUESTIONS]
    assert table.as_of(QUESTIONS) == expected
    for key in KEYS:
        content = np.frombuffer(key, np.uint8)
        found = version_chains.latest(table.versions, content, 0, len(key))
        assert found == (newest[key][1] if key in newest and not newest[key][2] else NONE)


@given(changes=changes)
def test_the_index_and_the_blocks_can_be_rebuilt(changes: list[tuple[bytes, int, str]]) -> None:
    table = filled(changes)
    before = table.as_of(QUESTIONS)
    live = int(table.versions.chains.numbers[arena.LIVE])
    version_chains.reindex(table.versions)
    version_chains.repack(table.versions, np.empty(live + 1, np.int64))
    assert table.versions.chains.numbers[arena.USED] == live + 1
    assert table.as_of(QUESTIONS) == before


@pytest.mark.parametrize("order", ["ascending", "descending", "in turn"])
def test_adding_at_the_ends_moves_few_entries(order: str) -> None:
    """Blocks are replaced rarely, whichever end grows: every entry is moved a few times at most."""
    table, times = Table(), list(range(400))
    if order == "descending":
        times.reverse()
    elif order == "in turn":
        times = [200 + (at // 2 if at % 2 else -at // 2) for at in range(400)]
    moved, block = 0, -1
    for count, timestamp in enumerate(times):
        table.put(b"a", timestamp)
        moved += count * (block != (block := int(table.versions.block[0])))
    assert moved <= 10 * len(times)
