"""Fair turns: which item of whose a worker takes next. It knows neither threads nor connections."""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Callable
from typing import Generic, TypeVar

Item = TypeVar("Item")


class Turns(Generic[Item]):
    """Items of several owners that wait. An owner takes its next turn after all others that wait have had theirs."""

    def __init__(self) -> None:
        self._waiting: OrderedDict[str, deque[Item]] = OrderedDict()

    def __len__(self) -> int:
        """Return how many items wait."""
        return sum(map(len, self._waiting.values()))

    def add(self, owner: str, item: Item) -> None:
        """Let the item wait behind the owner's others; an owner that had none waits behind the other owners."""
        self._waiting.setdefault(owner, deque()).append(item)

    def take(self) -> Item | None:
        """Return the next item; None if none waits."""
        if not self._waiting:
            return None
        owner, items = self._waiting.popitem(last=False)
        item = items.popleft()
        if items:
            # rule: fair-turns
            self._waiting[owner] = items
        return item

    def withdraw(self, unwanted: Callable[[Item], bool] = lambda item: True) -> list[Item]:
        """Remove the unwanted items and return them, in order of owners; by default all."""
        withdrawn: list[Item] = []
        for owner, items in list(self._waiting.items()):
            withdrawn += [item for item in items if unwanted(item)]
            kept = deque(item for item in items if not unwanted(item))
            if kept:
                self._waiting[owner] = kept
            else:
                del self._waiting[owner]
        return withdrawn
