"""How long to wait before the service is asked again."""

from __future__ import annotations

import random

_FIRST_SECONDS, _LONGEST_SECONDS = 1.0, 20.0


def pause_after(n_failures: int) -> float:
    """Return seconds after so many failures in a row: about 1, then twice as long each time, at most 20.

    Each is drawn from half to one and a half of that, so that hosts do not come all at once.
    """
    middle = min(_FIRST_SECONDS * 2.0 ** min(max(n_failures - 1, 0), 10), _LONGEST_SECONDS)
    return middle * random.uniform(0.5, 1.5)  # noqa: S311 - spreads hosts, guards nothing
