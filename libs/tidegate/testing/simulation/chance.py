"""What goes wrong, drawn from a seed.

Each fault has a generator of its own, so that taking one fault out of a failing seed moves none of the others.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from math import log
from random import Random

RATES = {
    "kill": 0.03,  # per kill point reached: the process is gone, what it had asked for goes on
    "rare_kill": 0.25,  # per kill point reached that few runs come to: the same
    "crash": 0.004,  # per step of a process elsewhere: the same
    "pause": 0.004,  # per step: stopped for a while, as by SIGSTOP or a long collection of garbage
    "switch": 0.01,  # per step: another process comes first
    "zombie_task": 0.06,  # per group of partitions: the job fails while the task goes on, later
    "job_failure": 0.03,  # per job: the tasks have finished, the driver never learns
    "lost_answer": 0.012,  # per request to Kafka
    "slow_markers": 0.3,  # per end of a transaction: its parts become visible one after the other
    "short_fetch": 0.2,  # per fetch: one record batch at a time
    "unclear_commit": 0.08,  # per try of a commit to the log
    "lake_failure": 0.01,  # per data file read
    "lost_lease": 0.5,  # per lease that is written: the table goes on with the former one
    "disk_full": 0.01,  # per file made, in the lake and on the local disk
    "clock_jump": 0.06,  # per moment, here and below
    "broker_outage": 0.03,
    "forgotten_id": 0.05,  # an idle transactional id has expired
    "takeover": 0.05,  # a second driver starts, on another machine or the same, whatever the first one does
    "marks_expire": 0.05,  # those that nobody has committed for as long as the broker keeps offsets
    "long_silence": 0.015,  # no process runs for as long as that
    "truncation": 0.015,  # an input partition loses its newest records, and gives their offsets to others
    "output_retention": 0.03,  # an output partition loses its records, or the older half of them
    "drain": 0.02,  # SIGTERM
    "reboot": 0.02,  # the machine loses its processes, and what was not synced
    "state_deleted": 0.03,
    "compaction": 0.06,
    "foreign_optimize": 0.1,  # somebody else merges files of the log
    "lake_away": 0.03,  # it comes back after a few moments
    "flush": 0.02,
    "input_transaction": 0.25,  # per feed: others write the input in transactions, and abort some
}
"""How likely each fault is where it could happen."""

_LIKELIEST = 0.9
"""However intense a run is, a fault sometimes spares it."""


class Chance:
    """Draws the faults of one run and counts those that happened; none happens while `calm`."""

    def __init__(self, seed: int, faults: Iterable[str], intensity: float) -> None:
        self._seed, self._intensity = seed, intensity
        self._enabled = frozenset(faults)
        self._generators: dict[str, Random] = {}
        self._spared = {fault: self._next(fault) for fault in RATES}
        self.counts: Counter[str] = Counter()
        self.calm = False

    def happens(self, fault: str) -> bool:
        """True, and counted, when the fault strikes here and now."""
        self._spared[fault] -= 1
        if self._spared[fault] >= 0:
            return False
        self._spared[fault] = self._next(fault)
        if self.calm or fault not in self._enabled:
            return False
        self.counts[fault] += 1
        return True

    def _next(self, fault: str) -> int:
        """How many chances pass before the fault strikes: drawn once for all of them, as there are so many."""
        return int(log(1.0 - self.of(fault).random()) / log(1.0 - min(RATES[fault] * self._intensity, _LIKELIEST)))

    def of(self, name: str) -> Random:
        """The generator of that name."""
        if name not in self._generators:
            self._generators[name] = Random(f"{self._seed} {name}")
        return self._generators[name]
