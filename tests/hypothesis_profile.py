"""How many examples a property is tested with.

| `HYPOTHESIS_PROFILE` | run by | a property | the laws | those on Delta | `sized(20)` |
| --- | --- | --- | --- | --- | --- |
| | `make test-fast` | 50 | 15 | | 10 |
| `full` | `make test` | 50 | 20 | 10 | 20 |
| `checked` | `make checked` | 50 | 20 | | 20 |
| `laws` | `make laws` | 50 | 2,000 | 250 | 20 |

`make test` and `make checked` play the same examples on each run, so that a failure tells of the change that was made.
Those of `make checked` are others: together they play 40 of each law with each operator, and none twice.
`make test-fast` and `make laws` draw new ones. No deadline: the first example may compile a kernel.
"""

from __future__ import annotations

import os

from hypothesis import HealthCheck, settings

_PROFILE = os.environ.get("HYPOTHESIS_PROFILE", "")

WHOLE = _PROFILE != ""
"""Whether tests play all that they have; `make test-fast` plays a part of what differs only in its numbers."""


def sized(examples: int) -> settings:
    """Return the settings of a property that plays so many examples, and half of them in `make test-fast`."""
    return settings(max_examples=examples if WHOLE else examples // 2)


settings.register_profile(
    "tests",
    max_examples=50,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
    derandomize=_PROFILE == "full",  # `make checked` gives a seed instead
)
settings.load_profile("tests")

many = settings(max_examples={"full": 20, "checked": 20, "laws": 2_000}.get(_PROFILE, 15))
"""For the laws."""

on_delta = settings(max_examples=250 if _PROFILE == "laws" else 10)
"""For laws with a real log, whose examples take several times as long."""
