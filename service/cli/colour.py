"""Colours for a terminal: where it is one, and where NO_COLOR (no-color.org) does not forbid them."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Mapping
from typing import TextIO

_BOLD, _YELLOW, _RED, _CYAN, _END = "\033[1m", "\033[33m", "\033[31m", "\033[36m", "\033[0m"
_STYLES = (
    (re.compile(r"(?:#1 |[1-9]\. |Why this one:)"), _BOLD),
    (re.compile(r"(?:! |warning:|assumed:|and \d+ more assumed)"), _YELLOW),
    (re.compile(r"(?:error:|refused)"), _RED),
    (re.compile(r"(?:git clone|cmake|hf download|llama-|brew|conda|winget|CUDA_|HIP_|numactl|  -)"), _CYAN),
)


def allows_colour(stream: TextIO, environment: Mapping[str, str]) -> bool:
    """Return whether colours may be written: to a terminal that knows them, unless NO_COLOR is set."""
    return stream.isatty() and not environment.get("NO_COLOR") and environment.get("TERM") != "dumb"


def print_text(text: str) -> None:
    """Print an answer, in colours where they are allowed: without them every character is the same."""
    print(coloured(text) if allows_colour(sys.stdout, os.environ) else text, end="")


def coloured(text: str) -> str:
    """Return an answer with its sentence and headings bold, commands cyan, warnings yellow and errors red."""
    lines, in_sentence = [], True
    for number, line in enumerate(text.split("\n")):
        in_sentence = in_sentence and (number == 0 or line.startswith("  "))
        style = _BOLD if in_sentence and line else next((s for shape, s in _STYLES if shape.match(line)), "")
        lines.append(f"{style}{line}{_END}" if style else line)
    return "\n".join(lines)
