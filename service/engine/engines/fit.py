"""What an engine's own placement (`-fit`) is asked: a command, what cards have free, how memory is computed."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import msgspec

from service.engine.config import Flags
from service.engine.model import Model


class FitAsked(msgspec.Struct, frozen=True, kw_only=True):
    """A command that is placed. `n_ctx` 0: not given. `free`: bytes on each card.

    `placed`: the command places the model itself. `streams`: caches of their own (no `-kvu`). `used`: returns the bytes
    that flags take on each card.
    """

    model: Model
    flags: Flags
    n_ctx: int
    free: Sequence[int]
    placed: bool
    streams: int
    used: Callable[[Flags], list[int]]
