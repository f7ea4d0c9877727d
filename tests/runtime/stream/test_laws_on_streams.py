"""The laws of the operators, once more with a streaming DataFrame as the input: a Delta table, written in pieces.

The reference foretells what each partition does; Spark itself is asked which partition a key belongs to.
"""

from __future__ import annotations

import random
import shutil
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import pytest

from tests.runtime.stream.conftest import PARTITIONS, Place, partitions_of, records_in
from tidegate.contracts.event_time import NO_TIMESTAMP
from tidegate.contracts.records import Row
from tidegate.operators.testing.cases import cases
from tidegate.operators.testing.laws import Trace

pytestmark = pytest.mark.spark

RULES = {"until": {"time_limit": "40ms"}, "max_lateness": "60ms", "buffer": {"max_keys": 5, "when_full": "emit"}}
COUNT = 160


def rows(seed: int) -> list[dict[str, Any]]:
    """Rows out of order, some of them late, some with nulls; `number` is the order of their arrival."""
    rng = random.Random(seed)
    return [
        {
            "id": rng.choice([None, *(f"key {n}" for n in range(12))])
            if number % 10 == 0
            else f"key {rng.randrange(12)}",
            "payload": rng.choice([None, b"", b"%d" % number]),
            "at": rng.choice([None, -1]) if number % 17 == 0 else max(0, number + rng.randrange(-90, 10)),
            "number": number,
        }
        for number in range(COUNT)
    ]


def pieces(made: Sequence[dict[str, Any]], cuts: Sequence[int]) -> list[list[dict[str, Any]]]:
    """The rows, cut before the given places; within a piece they are in any order."""
    bounds = [0, *cuts, len(made)]
    found = [list(made[first:end]) for first, end in pairwise(bounds)]
    for piece in found:
        random.Random(len(piece)).shuffle(piece)
    return found


def foretold(here: Place, made: Sequence[dict[str, Any]]) -> list[Trace]:
    """What the reference says of each partition."""
    keys = [None if row["id"] is None else row["id"].encode() for row in made]
    where = partitions_of(here.spark, [*sorted({key for key in keys if key is not None}), None])
    histories: list[list[Row]] = [[] for _ in range(PARTITIONS)]
    for key, row in zip(keys, made, strict=True):
        history = histories[where[key]]
        timestamp = NO_TIMESTAMP if row["at"] is None else row["at"]
        history.append(Row(key, row["payload"], timestamp, len(history)))
    return [cases()["suppression"].reference(here.rules, history, 0) for history in histories]


def seen(here: Place, kind: str, partition: int, like: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """The log's rows, with the columns that the reference speaks of."""
    names = list(like[0]) if like else []
    return [{name: row[name] for name in names} for row in here.rows(kind, partition)]


def assert_as_foretold(here: Place, made: Sequence[dict[str, Any]]) -> None:
    """Laws 1 and 8: the log holds what the reference foretells, and every record has one count."""
    for partition, trace in enumerate(foretold(here, made)):
        assert trace.emissions, "the example is too small to tell anything"
        assert seen(here, "emission", partition, trace.emissions) == trace.emissions
        assert seen(here, "late", partition, trace.late) == trace.late
        assert seen(here, "rejected", partition, trace.rejected) == trace.rejected
        totals = here.metas()[-1].partitions[partition].totals
        assert (totals.applied, totals.superseded) == (trace.applied, trace.superseded)
        assert (totals.late, totals.rejected) == (len(trace.late), len(trace.rejected))
    metas = here.metas()
    assert all(change.counts.balanced for meta in metas for change in meta.changed.values())
    assert records_in(metas) == len(made)


def test_laws_1_2_and_8_a_stream_equals_the_reference_however_it_is_cut(place):
    made = rows(seed=1)
    outputs = []
    for name, cuts in (("one", ()), ("three", (50, 90))):
        here = place(name, **RULES)
        for piece in pieces(made, cuts):
            here.write(piece)
        here.run()
        assert len([meta for meta in here.metas() if meta.action == "batch"]) == len(cuts) + 1
        assert_as_foretold(here, made)
        outputs.append(here.outputs())
    assert outputs[0] == outputs[1]
    assert {row["cause"] for row in outputs[0]["rejected"]} >= {"null key", "no timestamp: null", "negative timestamp"}
    assert outputs[0]["late"]


def test_law_3_a_restart_from_local_state_or_from_the_log_changes_nothing(place):
    made = rows(seed=2)
    here = place(**RULES)
    first, second, third, fourth = pieces(made, (40, 80, 120))
    here.write(first)
    here.run()
    older = here.folder / "older"
    shutil.copytree(here.folder / "state", older)
    here.write(second)
    here.run()  # from the local state
    shutil.rmtree(here.folder / "state")
    here.write(third)
    here.run()  # from the log alone
    shutil.rmtree(here.folder / "state")
    shutil.copytree(older, here.folder / "state")
    here.write(fourth)
    here.run()  # from an older local state and the log
    assert_as_foretold(here, made)
    assert [meta.epoch for meta in here.metas() if meta.action == "claim"] == [1, 2, 3, 4]
