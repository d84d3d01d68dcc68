"""A limit on the CPU seconds that a block may take: the kernel's timer of this process' CPU time ends it.

For the main thread of a process that does one thing at a time, as the work horse of a worker is.
"""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from types import FrameType
from typing import TypeAlias

_AGAIN_SECONDS = 1.0  # the signal comes again, should code have caught what the first one raised

CpuLimit: TypeAlias = Callable[[float], AbstractContextManager[None]]


class CpuSpent(Exception):
    """The block took more CPU than it may."""


class _Interrupt(BaseException):
    """Raised wherever the block is; no `except Exception` on the way takes it for an error of its own."""


@contextmanager
def cpu_limit(seconds: float) -> Iterator[None]:
    """Run the block for at most so many CPU seconds of this process, all threads together. Raises CpuSpent."""

    def spent(signum: int, frame: FrameType | None) -> None:
        raise _Interrupt

    before = signal.signal(signal.SIGPROF, spent)
    try:
        signal.setitimer(signal.ITIMER_PROF, seconds, _AGAIN_SECONDS)
        yield
    except _Interrupt:
        raise CpuSpent from None
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)


def no_limit(seconds: float) -> AbstractContextManager[None]:
    """Run the block for as long as it takes."""
    return nullcontext()
