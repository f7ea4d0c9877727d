"""`python -m benchmarks NAME [--json]`: runs a benchmark, prints its figures, checks its bounds."""

from __future__ import annotations

import argparse
import json
import sys
from functools import partial

from benchmarks import kernel, suppression

BOUNDS = {
    "kernel": {"kernel_records_per_s": 10_000_000},
    "suppression": {"ratio": 3.0},
}
_MEASURES = {"kernel": kernel.measure, "suppression": partial(suppression.measure, say=partial(print, file=sys.stderr))}


def main() -> int:
    """0 if every bound holds."""
    parser = argparse.ArgumentParser(prog="benchmarks")
    parser.add_argument("name", choices=[*_MEASURES, "all"])
    parser.add_argument("--json", action="store_true")
    chosen = parser.parse_args()
    names = list(_MEASURES) if chosen.name == "all" else [chosen.name]
    figures = {name: _MEASURES[name]() for name in names}
    held = all(figures[name][figure] >= bound for name in names for figure, bound in BOUNDS[name].items())
    if chosen.json:
        print(json.dumps({"figures": figures, "bounds": {name: BOUNDS[name] for name in names}, "held": held}))
    else:
        for name in names:
            for figure, value in figures[name].items():
                bound = BOUNDS[name].get(figure)
                print(f"{name:12} {figure:28} {value:>16,.2f}" + (f"   bound >= {bound:,}" if bound else ""))
    return 0 if held else 1


if __name__ == "__main__":
    sys.exit(main())
