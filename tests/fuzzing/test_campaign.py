"""A campaign finds a planted fault, and its file reproduces the fault."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.fuzzing import campaign as campaigns
from tests.fuzzing.campaign import content_of, fuzz, repeat

pytestmark = pytest.mark.fast


def faulty(content: bytes) -> None:
    """A target that fails for one input in four."""
    assert content[0] % 4


def test_a_fault_is_found_and_its_file_reproduces_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(campaigns, "TURN_S", 0.01)
    targets = {"sound": lambda content: None, "faulty": faulty}
    campaign = fuzz(targets, seed=7, seconds=0.01, folder=tmp_path)
    assert list(campaign.failures) == ["faulty"]
    assert campaign.cases["sound"] > 1
    with pytest.raises(AssertionError):
        repeat(targets, campaign.failures["faulty"])


def test_the_same_seed_gives_the_same_cases() -> None:
    assert content_of(1, "a", 5) == content_of(1, "a", 5)
    assert len({content_of(seed, name, number) for seed in (1, 2) for name in "ab" for number in range(5)}) == 20
