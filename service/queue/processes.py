"""Child processes that never outlive us."""

from __future__ import annotations

import ctypes
import os
import signal
import sys
from collections.abc import Callable

_PR_SET_PDEATHSIG = 1  # <sys/prctl.h>
_libc = ctypes.CDLL(None, use_errno=True) if sys.platform == "linux" else None


def die_with_parent(parent: int, sig: signal.Signals = signal.SIGKILL) -> None:
    """Ask the kernel to send us `sig` when our parent (process id `parent`) dies; at once if it has died already.

    Linux only: elsewhere nothing happens, and a child of a killed parent must be ended by hand.
    """
    if _libc is None:
        return
    _libc.prctl(_PR_SET_PDEATHSIG, int(sig), 0, 0, 0)
    if os.getppid() != parent:
        os.kill(os.getpid(), sig)


def bound_to_parent(sig: signal.Signals = signal.SIGKILL) -> Callable[[], None]:
    """Return a `preexec_fn` that binds a child's life to ours. The thread that starts the child must live as long."""
    parent = os.getpid()
    return lambda: die_with_parent(parent, sig)
