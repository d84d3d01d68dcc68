"""A limit on the CPU seconds of a block, enforced by the kernel's timer of the process's CPU time.

Only for the main thread of a process that does one thing at a time, such as an RQ work horse.
"""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from types import FrameType
from typing import TypeAlias

_AGAIN_SECONDS = 1.0  # the signal is repeated, in case some code caught the first exception

CpuLimit: TypeAlias = Callable[[float], AbstractContextManager[None]]


class CpuSpent(Exception):
    """The block took more CPU than it may."""


class _Interrupt(BaseException):
    """Raised wherever the block happens to be; as a BaseException it passes every `except Exception`."""


@contextmanager
def cpu_limit(seconds: float) -> Iterator[None]:
    """Run the block for at most `seconds` of this process's CPU time, all threads together. Raises CpuSpent."""

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
