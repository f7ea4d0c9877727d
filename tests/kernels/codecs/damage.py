"""Damage of values, for every codec alike."""

from __future__ import annotations

from random import Random


def damaged(value: bytes, dice: Random, first: int = 0) -> bytes:
    """The value with up to three bytes or parts changed, none of them before the byte `first`."""
    found = bytearray(value)
    for _ in range(dice.choice([1, 1, 2, 3])):
        at = dice.randint(first, max(first, len(found)))
        match dice.choice(["set", "insert", "cut"]):
            case "set" if at < len(found):
                found[at] = dice.randrange(256)
            case "insert":
                found[at:at] = bytes(dice.randrange(256) for _ in range(dice.randint(1, 6)))
            case _:
                del found[at:]
    return bytes(found)
