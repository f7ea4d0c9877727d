"""The faults of a run, drawn from a seed.

Each fault has its own random generator, so that removing one fault from a failing seed leaves the others where they
are.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from math import log
from random import Random

RATES = {
    "kill": 0.03,  # per kill point reached: the process dies; its requests under way go on
    "rare_kill": 0.25,  # per kill point that few runs reach: the same
    "crash": 0.004,  # per step of a process outside kill points: the same
    "pause": 0.004,  # per step: stopped for a while, as by SIGSTOP or a long garbage collection
    "switch": 0.01,  # per step: another process runs first
    "zombie_task": 0.06,  # per group of partitions: the job fails, and the task continues later
    "job_failure": 0.03,  # per job: it fails after its tasks have finished
    "lost_answer": 0.012,  # per request to Kafka
    "slow_markers": 0.3,  # per end of a transaction: its partitions become visible one after the other
    "short_fetch": 0.2,  # per fetch: one record batch at a time
    "unclear_commit": 0.08,  # per attempt to commit to the log
    "lake_failure": 0.01,  # per data file read
    "lost_lease": 0.5,  # per write of a lease: the table keeps using the previous one
    "disk_full": 0.01,  # per file created, in the lake and on the local disk
    "clock_jump": 0.06,  # per moment, as everything below without a unit
    "broker_outage": 0.03,
    "forgotten_id": 0.05,  # an idle transactional id expires
    "takeover": 0.05,  # a second driver starts, on the same or another machine, while the first may be running
    "marks_expire": 0.05,  # the broker drops offsets that were committed longer ago than its retention
    "long_silence": 0.015,  # no process runs for longer than the broker's offset retention
    "truncation": 0.015,  # an input partition loses its newest records and reuses their offsets
    "output_retention": 0.03,  # an output partition loses all its records, or the older half
    "drain": 0.02,  # SIGTERM
    "reboot": 0.02,  # the machine loses its processes and unsynced writes
    "state_deleted": 0.03,
    "compaction": 0.06,
    "foreign_optimize": 0.1,  # another program merges files of the log
    "stale_listing": 0.1,  # per listing of a log's entries: the newest object is missing
    "lake_away": 0.03,  # the lake is unmounted for a few moments
    "flush": 0.02,
    "change": 0.1,  # a person edits the steps of a pipeline: plans, and applies what the plan allows
    "input_transaction": 0.25,  # per feed: records are written in a transaction, which may abort
}
"""Probability of each fault at each place where it can occur."""

_LIKELIEST = 0.9
"""Upper bound of a probability: even in an intense run a fault sometimes does not occur."""


class Chance:
    """Draws the faults of one run and counts those that occur. No fault occurs while `calm`."""

    def __init__(self, seed: int, faults: Iterable[str], intensity: float) -> None:
        self._seed, self._intensity = seed, intensity
        self._enabled = frozenset(faults)
        self._generators: dict[str, Random] = {}
        self._spared = {fault: self._next(fault) for fault in RATES}
        self.counts: Counter[str] = Counter()
        self.calm = False

    def happens(self, fault: str) -> bool:
        """Return True if the fault occurs here and now, and count it."""
        self._spared[fault] -= 1
        if self._spared[fault] >= 0:
            return False
        self._spared[fault] = self._next(fault)
        if self.calm or fault not in self._enabled:
            return False
        self.counts[fault] += 1
        return True

    def _next(self, fault: str) -> int:
        """Draw how many chances pass before the fault occurs: one draw for all of them, because there are many."""
        return int(log(1.0 - self.of(fault).random()) / log(1.0 - min(RATES[fault] * self._intensity, _LIKELIEST)))

    def of(self, name: str) -> Random:
        """Return the random generator of that name."""
        if name not in self._generators:
            self._generators[name] = Random(f"{self._seed} {name}")
        return self._generators[name]
