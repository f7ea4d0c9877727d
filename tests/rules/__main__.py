"""`python -m tests.rules`: take each rule of the commit protocol out in turn, and see a test of it fail."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

from rich.console import Console
from rich.table import Table

from tests.rules import trial
from tests.rules.inventory import RULES
from tests.rules.rule import Rule, Trial, trials
from tests.rules.tags import SOURCE, places
from tests.rules.trial import ROOT, Verdict


class Result(NamedTuple):
    """The result of one trial."""

    trial: Trial
    seconds: float
    verdict: Verdict
    output: str


def main() -> int:
    """Return 0 if every removal was caught."""
    arguments = _arguments()
    wanted = arguments.rule or [""]
    rules = [rule for rule in RULES if any(words in rule.name or words == rule.slug for words in wanted)]
    trial.preload()
    with TemporaryDirectory(prefix="rules-") as folder:
        trial.copy(ROOT, Path(folder))
        passing = _passing(Path(folder), rules)
        results = _all(Path(folder), rules, passing, arguments.processes)
    _show(rules, results)
    return 0 if all(result.verdict is Verdict.CAUGHT for result in results) else 1


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.rules", description=__doc__)
    parser.add_argument(
        "--rule",
        action="append",
        default=[],
        help="only the rule with this slug, or rules whose name has these words; may be repeated",
    )
    parser.add_argument("--processes", type=int, default=2, help="how many removals are tried at a time")
    return parser.parse_args()


def _passing(source: Path, rules: Sequence[Rule]) -> frozenset[str]:
    """Return the tests that pass with all rules in place, and print those that do not."""
    tests = sorted({test for rule in rules for test in rule.tests})
    print(f"{len(tests)} tests of {len(rules)} rules, with all rules in place", flush=True)
    outcome = trial.run(source, tests, first_failure=False)
    if missing := [name for name in tests if name not in outcome.passed]:
        print(outcome.output, "do not pass:", *missing, sep="\n", flush=True)
    return outcome.passed


def _all(source: Path, rules: Sequence[Rule], passing: frozenset[str], processes: int) -> list[Result]:
    wanted = trials(rules, places(source))
    results: list[Result] = []
    with ThreadPoolExecutor(processes) as pool:
        running = [pool.submit(_try, source, each, passing) for each in wanted]
        for future in as_completed(running):
            results.append(result := future.result())
            count, rule = f"[{len(results)}/{len(wanted)}]", result.trial.rule
            print(f"{count:>9} {result.verdict.value:<12} {result.seconds:5.1f} s  {rule.name}", flush=True)
            if result.verdict is not Verdict.CAUGHT:
                print(result.trial.place, result.trial.removal.words, result.output, sep="\n", flush=True)
    return results


def _try(source: Path, tried: Trial, passing: frozenset[str]) -> Result:
    if not passing.issuperset(tried.rule.tests):
        return Result(tried, 0.0, Verdict.FAILS_ANYWAY, "")
    try:
        outcome = trial.without(source, tried.removal, tried.place, tried.rule.tests)
    except (OSError, ValueError) as error:
        return Result(tried, 0.0, Verdict.BROKEN, str(error))
    return Result(tried, outcome.seconds, outcome.verdict, outcome.output)


def _show(rules: Sequence[Rule], results: Sequence[Result]) -> None:
    table = Table("rule", "tests", "taken out of", "s", "verdict")
    for result in sorted(results, key=lambda result: rules.index(result.trial.rule)):
        rule, _removal, place = result.trial
        table.add_row(
            rule.name,
            str(len(rule.tests)),
            place.file.removeprefix(f"{SOURCE}/"),
            f"{result.seconds:.1f}",
            result.verdict.value,
            end_section=True,
        )
    Console().print(table)
    caught = sum(result.verdict is Verdict.CAUGHT for result in results)
    print(f"{len(rules)} rules, {len(results)} removals, {caught} caught")


if __name__ == "__main__":
    sys.exit(main())
