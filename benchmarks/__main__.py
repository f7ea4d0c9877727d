"""`python -m benchmarks NAME [--json]`: run a benchmark, print its figures, and check them against their bounds."""

from __future__ import annotations

import argparse
import importlib
import importlib.util
import json
import sys
from dataclasses import dataclass
from functools import partial
from typing import Any

from benchmarks.in_memory import calibration


@dataclass(frozen=True)
class Bound:
    """The range of a figure: at least `least`, at most `most`."""

    least: float | None = None
    most: float | None = None

    def holds(self, value: float) -> bool:
        """Return True if the value is within the bound."""
        return (self.least is None or value >= self.least) and (self.most is None or value <= self.most)

    def __str__(self) -> str:
        return f">= {self.least:,}" if self.least is not None else f"<= {self.most:,}"


BOUNDS: dict[str, dict[str, Bound]] = {
    "kernel": {"kernel_records_per_s": Bound(least=10_000_000)},
    "window_store": {"put_fetch_per_s": Bound(least=5_000_000)},
    "codecs": {
        "avro_read_per_s": Bound(least=10_000_000),
        "protobuf_read_per_s": Bound(least=5_000_000),
        "json_read_per_s": Bound(least=5_000_000),
    },
    "versions": {"lookups_per_s": Bound(least=5_000_000), "restore_s": Bound(most=30)},
    "suppression": {"ratio": Bound(least=6.0)},
    "latency": {
        "batch_of_1000_p50_ms": Bound(most=50),
        "p50_ratio": Bound(most=1.0),
        "p99_ratio": Bound(most=1.0),
    },
    "budget": {},
    "scale": {
        "batch_ratio": Bound(most=1.3),
        "bytes_per_held_record": Bound(most=120),
        "log_recovery_s_4p": Bound(most=20),
        "local_recovery_s_4p": Bound(most=2),
    },
    "long_log": {
        "claim_s": Bound(most=5),
        "status_s": Bound(most=3),
        "entry_of_one_partition_bytes": Bound(most=4_000),
    },
    "kills": {"start_to_commit_s_p50": Bound(most=3)},
    "many_operators": {"status_s": Bound(most=3)},
    "lake": {
        "usd_a_day_idle": Bound(most=0.10),
        "usd_a_day_every_5s_4p": Bound(most=0.40),
        "usd_a_day_every_5s_16p": Bound(most=0.40),
        "put_per_batch_4p": Bound(most=3.1),
        "put_per_batch_16p": Bound(most=3.1),
    },
    "commits": {"commit_time_ratio": Bound(most=1.5), "live_files_ratio": Bound(most=1.5)},
    "cores": {"busy_cores": Bound(least=1.6)},
    "join": {"ratio": Bound(least=9.0)},
    "stream_join": {"ratio": Bound(least=5.0)},
    "as_of_streams": {"ratio": Bound(least=5.0)},
    "windows": {"ratio": Bound(least=6.0)},
    "pipelines": {
        "kafka_streams_ratio": Bound(least=5.0),
        "three_steps_ratio": Bound(least=0.60),
        "three_steps_latency_ratio": Bound(most=1.4),
        "filter_ratio": Bound(least=0.90),
        "json_filter_ratio": Bound(least=0.90),
    },
    "typed_values": {"filter_ratio": Bound(least=0.60)},
    "live_windows": {"batch_ratio": Bound(most=1.3)},
    "join_kernel": {},
    "console": {"worst_page_p95_s": Bound(most=1), "slider_p95_s": Bound(most=0.3), "memory_mb": Bound(most=500)},
    "history": {
        "facts_batch_ratio": Bound(most=1.3),
        "joined_batch_ratio": Bound(most=1.3),
        "replica_s": Bound(most=30),
    },
}
"""Bounds by benchmark and figure. Each benchmark is the module of that name in one of FOLDERS; its `measure(say)`
returns the figures."""

FOLDERS = ("benchmarks", "benchmarks.in_memory", "benchmarks.resources", "benchmarks.peers")


def main() -> int:
    """Run the benchmarks and return 0 if every bound holds, else 1."""
    parser = argparse.ArgumentParser(prog="tidegate bench")
    parser.add_argument("name", choices=[*BOUNDS, "all"])
    parser.add_argument("--json", action="store_true")
    chosen = parser.parse_args()
    names = list(BOUNDS) if chosen.name == "all" else [chosen.name]
    say = partial(print, file=sys.stderr, flush=True)
    figures = {name: _measured(name, say) for name in names}
    held = all(bound.holds(figures[name][figure]) for name in names for figure, bound in BOUNDS[name].items())
    if chosen.json:
        bounds = {name: {figure: str(bound) for figure, bound in BOUNDS[name].items()} for name in names}
        print(json.dumps({"figures": figures, "bounds": bounds, "held": held}))
    else:
        _print(figures)
    return 0 if held else 1


def _measured(name: str, say: Any) -> dict[str, float]:
    """Return the benchmark's figures, after printing the machine's speed for comparison."""
    say(f"{name}: {calibration.SAYS} {calibration.machine_records_per_s():,.0f}")
    figures: dict[str, float] = _module(name).measure(say)
    return figures


def _module(name: str) -> Any:
    folder = next(folder for folder in FOLDERS if importlib.util.find_spec(f"{folder}.{name}"))
    return importlib.import_module(f"{folder}.{name}")


def _print(figures: dict[str, dict[str, float]]) -> None:
    for name, found in figures.items():
        for figure, value in found.items():
            bound = BOUNDS[name].get(figure)
            verdict = "" if bound is None else f"   bound {bound}" + ("" if bound.holds(value) else "   MISSED")
            print(f"{name:12} {figure:32} {value:>16,.2f}{verdict}")


if __name__ == "__main__":
    sys.exit(main())
