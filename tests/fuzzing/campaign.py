"""Cases of all targets in turn, until the time is over; each that fails is a small file.

A case is named by its seed, its target and its number: what is random about it comes of these alone.
"""

from __future__ import annotations

import base64
import json
import random
import time
import traceback
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from tests.fuzzing.targets import Target

TURN_S = 1.0
"""How long a target has before it is the next one's turn."""

SIZES = (64, 512, 4_096, 8_192)


@dataclass
class Campaign:
    """How many cases of each target were played, and the files of those that failed."""

    cases: Counter[str] = field(default_factory=Counter)
    failures: dict[str, Path] = field(default_factory=dict)


def content_of(seed: int, target: str, number: int) -> bytes:
    """Return the bytes of a case."""
    chance = random.Random(f"{seed}/{target}/{number}")
    return chance.randbytes(chance.choice(SIZES))


def fuzz(targets: Mapping[str, Target], seed: int, seconds: float, folder: Path) -> Campaign:
    """Play cases of every target until so many seconds are over, after the first case of each, which may compile."""
    campaign, ends = Campaign(), None
    while ends is None or time.monotonic() < ends:
        for name, target in targets.items():
            turn_ends = time.monotonic() + (TURN_S if ends else 0)
            while name not in campaign.failures and not _play(campaign, target, name, seed, folder):
                if time.monotonic() >= turn_ends:
                    break
        ends = ends or time.monotonic() + seconds
    return campaign


def _play(campaign: Campaign, target: Target, name: str, seed: int, folder: Path) -> bool:
    """Play the target's next case; return whether it failed."""
    content = content_of(seed, name, campaign.cases[name])
    campaign.cases[name] += 1
    try:
        target(content)
    except Exception:
        campaign.failures[name] = _write(folder, name, seed, campaign.cases[name] - 1, content)
        return True
    return False


def _write(folder: Path, name: str, seed: int, number: int, content: bytes) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{seed}-{len(list(folder.iterdir()))}.json"
    case = {"target": name, "seed": seed, "number": number, "input": base64.b64encode(content).decode()}
    path.write_text(json.dumps(case | {"error": traceback.format_exc().splitlines()}, indent=1) + "\n")
    return path


def repeat(targets: Mapping[str, Target], path: Path) -> None:
    """Play the case of a file; raise what it shows."""
    case = json.loads(path.read_text())
    targets[case["target"]](base64.b64decode(case["input"]))
