"""Compares a running server with its prediction: its buffers once it has loaded, and each answered request.

Of a server's output, only lines with figures are read and kept: no prompt, no answer, no address.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import msgspec

from service.engine.errors import InvalidInput
from service.engine.logs.requests import MeasuredSpeed, Request, read_requests, speeds_of, without_words

if TYPE_CHECKING:
    from service.settings import Settings
    from service.wire.advice.check import BatchCase, Checked

_LOADED = re.compile(r"model loaded|all slots are idle|server is listening|listening on http|prompt eval time =")
_ANSWERED = re.compile(r"stop processing|all slots are idle")  # all of a request's lines have been printed
_IDLE = "all slots are idle"
_MOST_LINES = 4_000  # kept for a file
_MOST_BUSY_LINES = 400  # read together, for a server that is never idle


class Watch:
    """Compares one server's output with its command's prediction, and reports through `say`."""

    def __init__(self, settings: Settings, case: BatchCase, say: Callable[[str], None]) -> None:
        self._settings, self._case, self._say = settings, case, say
        self._part = b""
        self._busy: list[str] = []  # since the server was idle: requests that run at once are read together
        self._told = 0
        self.kept: list[str] = []
        self.is_loaded = False

    def take(self, data: bytes) -> None:
        """Read output, in whole lines or not."""
        *lines, self._part = (self._part + data).split(b"\n")
        for line in lines:
            self._take_line(line.decode(errors="replace"))

    def _take_line(self, text: str) -> None:
        figures = without_words([text])[:1]
        if not self.is_loaded and _LOADED.search(text):
            self.is_loaded = True
            self._buffers()
        self.kept += figures if len(self.kept) < _MOST_LINES else []
        if self.is_loaded:
            self._busy += figures
        if self.is_loaded and _ANSWERED.search(text):
            self.finish(is_idle=_IDLE in text or len(self._busy) > _MOST_BUSY_LINES)

    def finish(self, *, is_idle: bool = True) -> None:
        """Report on answered requests; `is_idle`: none is still running."""
        found = read_requests(self._busy).found
        self.requests(found[self._told :])
        self._told = len(found)
        if is_idle:
            self._busy, self._told = [], 0

    def requests(self, found: Sequence[Request]) -> None:
        """Report each request's speed, and its expected speed."""
        for one in found:
            speeds = tuple(speeds_of(one))
            if one.flaw is not None or not speeds:
                self._say(f"request of {one.n_prompt:,} tokens: {one.flaw or 'too short to be timed'}")
                continue
            self._say(f"request: {one.n_prompt:,} tokens, {one.n_cached or 0:,} more cached, {one.n_output:,} answered")
            self._tell(self.compared(speeds))

    def compared(self, measured: tuple[MeasuredSpeed, ...] = (), log: str | None = None) -> Checked:
        """Return the check of the server's command against what was measured."""
        from service.flows.advice.check_direct import check_directly

        return check_directly(self._settings, msgspec.structs.replace(self._case, measured=list(measured), log=log))

    def _buffers(self) -> None:
        try:
            self._tell(self.compared(log="\n".join(self.kept)))
        except InvalidInput:
            self._say("it printed no buffer sizes: llama.cpp prints them with -lv 4")

    def _tell(self, checked: Checked) -> None:
        for one in checked.compared:
            off = "" if one.verdict == "within" else f": {one.verdict} what was expected"
            self._say(f"  {one.text}{off}")
