"""A progress bar on a terminal; otherwise lines, each printed once."""

from __future__ import annotations

import shutil
import sys
import time
from typing import TextIO

_BAR = 20
_SPINNER = "|/-\\"


class Progress:
    """Shows what is being done and how far it is; permanent lines are printed above the bar."""

    def __init__(self, stream: TextIO | None = None) -> None:
        self._stream = stream or sys.stderr
        self._is_terminal = self._stream.isatty()
        self._begun = time.monotonic()
        self._drawn = 0
        self._turn = 0
        self._said = ""

    def __enter__(self) -> Progress:
        return self

    def __exit__(self, *_: object) -> None:
        self._clear()

    def line(self, text: str) -> None:
        self._clear()
        print(text, file=self._stream, flush=True)

    def show(self, share: float, text: str) -> None:
        """Show what is being done, and the share of it that is done, 0 to 1. Without a terminal: only new texts."""
        if self._is_terminal:
            self._draw(min(max(share, 0.0), 1.0), text)
        elif text != self._said:
            self._said = text
            print(text, file=self._stream, flush=True)

    def _draw(self, share: float, text: str) -> None:
        self._turn += 1
        minutes, seconds = divmod(int(time.monotonic() - self._begun), 60)
        filled = round(share * _BAR)
        head = f"[{'#' * filled}{'.' * (_BAR - filled)}] {_SPINNER[self._turn % 4]} {minutes}:{seconds:02} "
        shown = (head + text)[: shutil.get_terminal_size().columns - 1]
        self._stream.write("\r" + shown.ljust(self._drawn))
        self._stream.flush()
        self._drawn = len(shown)

    def _clear(self) -> None:
        if self._drawn:
            self._stream.write("\r" + " " * self._drawn + "\r")
            self._stream.flush()
            self._drawn = 0
