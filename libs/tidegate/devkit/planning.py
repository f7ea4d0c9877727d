"""What a deployment that does not fit a test machine will need: arithmetic over constants that were measured on one.

`python -m tidegate.devkit.planning` prints the table of docs/planning.md.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from math import ceil

from tidegate.runtime.workers.placement import Placement, Post, team_size
from tidegate.state.request_budget import DAY_S, GET_USD, PUT_USD, STANDING_USD

# Requests of a batch, compactions and clean-ups included: `tidegate bench lake`.
PUTS_BESIDE_FILES = 1.09
"""The log's entry, and a batch's share of compactions."""
LISTS_OF_BATCH, READS_OF_BATCH = 0.09, 5.2

# Times of a batch. Kafka's and the kernel's were measured on two busy cores; the store's are S3's.
STORE_S = 0.1
"""Data files, then the entry: two PUTs one after the other, of 40 ms each and some more at times."""
WORKER_S_OF_PARTITION = 0.006
"""A partition's share of a worker: fetch, kernel, produce, and its part of the transaction; two run at once."""
DRIVER_CPU_OF_BATCH, DRIVER_CPU_OF_PARTITION = 0.02, 0.0003
"""Seconds of the driver's core: plans, results, metadata, requests to the lake and to Kafka. Assumed, not measured."""
DRIVER_CPU_OF_WORKER = 0.0002
"""Seconds of the driver's core a second for each worker: two signs of life, and two looks of the keeper."""

# Memory
DRIVER_BYTES, DRIVER_BYTES_OF_PARTITION, WORKER_BYTES = 450e6, 8e3, 250e6

# Recovery
REBUILT_ROWS_A_S = 350_000.0
"""Rows of state that a worker reads from the log and applies in a second, of 100 bytes each."""
NOTICED_S, FROZEN_S, LEASE_S = 1.0, 10.0, 30.0
"""A lost executor is noticed; a frozen one; and the lease of a driver in an object store runs out."""
CLAIM_S = 0.5
"""A claim and the look at the states: a dozen requests one after the other. CLAIMS_AT_ONCE run at the same time."""
CLAIMS_AT_ONCE = 20

BUSY_AT_MOST = 0.6
"""The share of a core that a driver may use, so that batches do not wait for each other."""


@dataclass(frozen=True, kw_only=True)
class Deployment:
    """A number of equal operators on equal nodes. `rows`: those of an operator's state, of `row_bytes` each."""

    operators: int
    partitions: int
    nodes: int
    cores: int
    rows: int
    row_bytes: int = 100
    trigger_s: float = 5.0


@dataclass(frozen=True, kw_only=True)
class Forecast:
    """What the deployment will need; `usd` a day are for requests alone."""

    team: int
    batch_s: float
    commits_a_s: float
    puts_of_batch: float
    requests_a_s: float
    usd: float
    driver_cores: float
    drivers: int
    driver_bytes: float
    busiest: int
    busiest_share: float
    node_bytes: float
    executor_lost_s: float
    executor_frozen_s: float
    driver_lost_s: float


def forecast(of: Deployment) -> Forecast:
    """Return what the deployment needs, and how long it recovers."""
    workers = of.nodes * of.cores
    team = min(team_size(of.partitions, is_local=False, limit=None) or workers, workers)
    work_s = of.partitions / team * WORKER_S_OF_PARTITION / 2
    batch_s = work_s + STORE_S
    commits = of.operators / (of.trigger_s + batch_s)
    puts = team + PUTS_BESIDE_FILES
    usd_of_batch = (puts + LISTS_OF_BATCH) * PUT_USD + READS_OF_BATCH * GET_USD
    cpu = commits * (DRIVER_CPU_OF_BATCH + of.partitions * DRIVER_CPU_OF_PARTITION) + workers * DRIVER_CPU_OF_WORKER
    drivers = max(1, ceil(cpu / BUSY_AT_MOST))
    busiest = busiest_worker(of, team)
    rebuild_s = NOTICED_S + _lost_at_once(of, team) * of.rows / team / REBUILT_ROWS_A_S
    return Forecast(
        team=team,
        batch_s=batch_s,
        commits_a_s=commits,
        puts_of_batch=puts,
        requests_a_s=commits * (puts + LISTS_OF_BATCH + READS_OF_BATCH),
        usd=commits * DAY_S * usd_of_batch + of.operators * STANDING_USD,
        driver_cores=cpu,
        drivers=drivers,
        driver_bytes=DRIVER_BYTES + of.operators * of.partitions / drivers * DRIVER_BYTES_OF_PARTITION,
        busiest=busiest,
        busiest_share=busiest * work_s / (of.trigger_s + batch_s),
        node_bytes=of.cores * WORKER_BYTES + of.operators * of.rows * of.row_bytes / of.nodes,
        executor_lost_s=rebuild_s,
        executor_frozen_s=rebuild_s - NOTICED_S + FROZEN_S,
        driver_lost_s=LEASE_S + ceil(of.operators / drivers / CLAIMS_AT_ONCE) * CLAIM_S,
    )


def busiest_worker(of: Deployment, team: int) -> int:
    """Return how many operators the busiest worker has, with the teams that rendezvous hashing gives."""
    return max(Counter(post for posts in _teams(of, team) for post in posts).values())


def _lost_at_once(of: Deployment, team: int) -> int:
    """Return how many operators one worker rebuilds at most when the node with most operators is lost.

    A single node is started again, and rebuilds its own.
    """
    if of.nodes == 1:
        return busiest_worker(of, team)
    before = _teams(of, team)
    nodes = Counter(place for posts in before for place in {post.place for post in posts})
    lost = max(nodes, key=lambda place: (nodes[place], place))
    after = _teams(of, team, lost)
    return max(Counter(post for old, new in zip(before, after, strict=True) for post in new - old).values(), default=0)


def _teams(of: Deployment, team: int, lost: str = "") -> list[frozenset[Post]]:
    """Return the team of each operator, without the lost node."""
    sizes = {node: of.cores for number in range(of.nodes) if (node := f"node-{number}") != lost}
    posts = [Post(node, str(core)) for node in sizes for core in range(of.cores)]
    placements = [Placement(f"operator-{number}") for number in range(of.operators)]
    for placement in placements:
        placement.settle((), sizes, posts, team)
    return [placement.team for placement in placements]


HUNDRED = Deployment(operators=100, partitions=100, nodes=20, cores=8, rows=10_000_000)
TEN_TIMES = Deployment(operators=1_000, partitions=100, nodes=200, cores=8, rows=10_000_000)


def table(*columns: Deployment) -> str:
    """Return the forecasts side by side, as a table in Markdown."""
    found = [forecast(column) for column in columns]
    heads = [f"{of.operators:,} operators x {of.partitions} partitions, {of.nodes} nodes" for of in columns]
    rows = {
        "workers of an operator": [f"{one.team}" for one in found],
        "a batch": [f"{one.batch_s * 1_000:.0f} ms" for one in found],
        "commits a second": [f"{one.commits_a_s:.0f}" for one in found],
        "PUTs a batch": [f"{one.puts_of_batch:.1f}" for one in found],
        "requests a second": [f"{one.requests_a_s:,.0f}" for one in found],
        "USD a day for requests": [f"{one.usd:,.0f}" for one in found],
        "cores of drivers": [f"{one.driver_cores:.1f}" for one in found],
        "drivers (processes)": [f"{one.drivers}" for one in found],
        "memory of a driver": [f"{one.driver_bytes / 1e9:.1f} GB" for one in found],
        "operators of the busiest worker": [f"{one.busiest}" for one in found],
        "its share of the time": [f"{one.busiest_share:.0%}" for one in found],
        "memory and states of a node": [f"{one.node_bytes / 1e9:.1f} GB" for one in found],
        "a node is lost: last state rebuilt after": [f"{one.executor_lost_s:.0f} s" for one in found],
        "a node freezes: the same": [f"{one.executor_frozen_s:.0f} s" for one in found],
        "a driver is lost: a standby drives after": [f"{one.driver_lost_s:.0f} s" for one in found],
    }
    lines = [f"| | {' | '.join(heads)} |", f"| --- |{' --- |' * len(heads)}"]
    return "\n".join([*lines, *(f"| {name} | {' | '.join(values)} |" for name, values in rows.items())])


if __name__ == "__main__":
    print(table(HUNDRED, TEN_TIMES))
