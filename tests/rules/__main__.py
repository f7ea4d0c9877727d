"""`python -m tests.rules`: each rule of the commit protocol is taken out in turn, and a test of it has to fail."""

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
from tests.rules.rule import Removal, Rule
from tests.rules.trial import ROOT, Verdict


class Trial(NamedTuple):
    """One removal of a rule, and what came of it."""

    rule: Rule
    removal: Removal
    seconds: float
    verdict: Verdict
    output: str


def main() -> int:
    """0 if every removal was caught."""
    asked = _arguments()
    rules = [rule for rule in RULES if rule.removals and any(words in rule.name for words in asked.rule or [""])]
    trial.preload()
    with TemporaryDirectory(prefix="rules-") as folder:
        trial.copy(ROOT, Path(folder))
        sound = _sound(Path(folder), rules)
        done = _all(Path(folder), rules, sound, asked.processes)
    _show(rules, done)
    return 0 if all(each.verdict is Verdict.CAUGHT for each in done) else 1


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.rules", description=__doc__)
    parser.add_argument(
        "--rule", action="append", default=[], help="only rules whose name has these words; may be repeated"
    )
    parser.add_argument("--processes", type=int, default=2, help="how many removals are tried at a time")
    return parser.parse_args()


def _sound(source: Path, rules: Sequence[Rule]) -> frozenset[str]:
    """The tests that pass as long as no rule is taken out."""
    named = sorted({test for rule in rules for test in rule.tests})
    print(f"{len(named)} tests of {len(rules)} rules, with all rules in place", flush=True)
    outcome = trial.run(source, named, first_failure=False)
    if missing := [name for name in named if name not in outcome.passed]:
        print(outcome.output, "do not pass:", *missing, sep="\n", flush=True)
    return outcome.passed


def _all(source: Path, rules: Sequence[Rule], sound: frozenset[str], processes: int) -> list[Trial]:
    wanted = [(rule, removal) for rule in rules for removal in rule.removals]
    done: list[Trial] = []
    with ThreadPoolExecutor(processes) as pool:
        running = [pool.submit(_try, source, rule, removal, sound) for rule, removal in wanted]
        for future in as_completed(running):
            done.append(each := future.result())
            place = f"[{len(done)}/{len(wanted)}]"
            print(f"{place:>9} {each.verdict.value:<12} {each.seconds:5.1f} s  {each.rule.name}", flush=True)
            if each.verdict is not Verdict.CAUGHT:
                print(each.output, flush=True)
    return done


def _try(source: Path, rule: Rule, removal: Removal, sound: frozenset[str]) -> Trial:
    if not sound.issuperset(rule.tests):
        return Trial(rule, removal, 0.0, Verdict.FAILS_ANYWAY, "")
    try:
        outcome = trial.without(source, removal, rule.tests)
    except (OSError, ValueError) as error:
        return Trial(rule, removal, 0.0, Verdict.BROKEN, str(error))
    return Trial(rule, removal, outcome.seconds, outcome.verdict, outcome.output)


def _show(rules: Sequence[Rule], done: Sequence[Trial]) -> None:
    table = Table("rule", "tests", "taken out of", "s", "verdict")
    for each in sorted(done, key=lambda each: rules.index(each.rule)):
        place = each.removal.file.removeprefix("libs/tidegate/")
        table.add_row(
            each.rule.name,
            str(len(each.rule.tests)),
            place,
            f"{each.seconds:.1f}",
            each.verdict.value,
            end_section=True,
        )
    Console().print(table)
    caught = sum(each.verdict is Verdict.CAUGHT for each in done)
    later = [rule for rule in RULES if rule.later]
    print(f"{len(rules)} rules, {len(done)} removals, {caught} caught; {len(later)} rules come with later operators")


if __name__ == "__main__":
    sys.exit(main())
