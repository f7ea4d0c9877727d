"""Fuzz, or repeat a case: `python -m tests.fuzzing [--seconds N] [--seed N] [--only TEXT] [FILE]`."""

from __future__ import annotations

import argparse
import random
import sys
from pathlib import Path

from tests.fuzzing.campaign import fuzz, repeat
from tests.fuzzing.targets import targets


def main() -> int:
    """Return 1 where a case failed."""
    options = _options()
    wanted = {name: target for name, target in targets().items() if options.only in name}
    if options.file:
        repeat(wanted, options.file)
        print("the case shows no fault")
        return 0
    print(f"seed {options.seed}: python -m tests.fuzzing --seed {options.seed} --seconds {options.seconds}", flush=True)
    campaign = fuzz(wanted, options.seed, options.seconds, options.folder)
    print(f"{campaign.cases.total()} cases of {len(wanted)} targets, {len(campaign.failures)} failed")
    for name, path in campaign.failures.items():
        print(f"  {name}: repeat it with python -m tests.fuzzing {path}")
    return 1 if campaign.failures else 0


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzzing")
    parser.add_argument("file", nargs="?", type=Path, help="a case that failed, to be played again")
    parser.add_argument("--seconds", type=float, default=600)
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(2**32))
    parser.add_argument("--only", default="", help="targets whose name has this in it")
    parser.add_argument("--folder", type=Path, default=Path("build/fuzzing"), help="where failing cases go")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
