"""How many examples a property is tested with.

| `HYPOTHESIS_PROFILE` | run by | a property | the laws | `sized(20)` |
| --- | --- | --- | --- | --- |
| | `make test-fast` | 50 | 15 | 10 |
| `full` | `make test` | 50 | 50 | 20 |
| `laws` | `make laws` | 50 | 2,000 | 20 |
| `few` | `make checked` | 50 | 20 | 20 |

`make test` and `make checked` play the same examples on each run, so that a failure tells of the change that was made;
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
    derandomize=_PROFILE in ("few", "full"),
)
settings.load_profile("tests")

many = settings(max_examples={"few": 20, "full": 50, "laws": 2_000}.get(_PROFILE, 15))
"""For the laws."""
