"""How far the computation of an advice is: the stage, a count, and about how long the rest takes."""

from __future__ import annotations

import time
from collections.abc import Callable

_PAUSE_SECONDS = 0.5  # between two messages of one stage
_KNOWN_SECONDS = 2.0  # an estimate from less time would jump
# Where each stage begins and ends, as a share of the time: as one profile of an advice for one GPU had it.
_SHARES = {"comparing variants": (0.0, 0.45), "placing configs": (0.45, 1.0)}


def counted(stage: str, done: int, of: int) -> str:
    """Return a report in words: `comparing variants: 5 of 16`."""
    return f"{stage}: {done} of {of}"


class Pace:
    """The search's reports as words. `say` gets them with the share of the search that is done, 0 to 1."""

    def __init__(self, say: Callable[[str, float], None], clock: Callable[[], float] = time.monotonic) -> None:
        self._say, self._clock = say, clock
        self._begun = clock()
        self._said: tuple[str, float] | None = None

    def __call__(self, stage: str, done: int, of: int) -> None:
        """Take one report: `done` of `of` in this stage, the one that is begun included."""
        now = self._clock()
        if self._said and self._said[0] == stage and now - self._said[1] < _PAUSE_SECONDS:
            return
        self._said = (stage, now)
        begin, end = _SHARES[stage]
        share = begin + (end - begin) * (done - 1) / of
        elapsed = now - self._begun
        left = round(elapsed * (1 - share) / share) if share and elapsed >= _KNOWN_SECONDS else 0
        self._say(counted(stage, done, of) + (f", about {left} s left" if left else ""), share)
