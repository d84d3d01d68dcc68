"""Progress as a terminal gets it, and as a pipe does."""

from __future__ import annotations

import os
import pty
import re
import subprocess
import sys
from collections.abc import Iterator
from io import StringIO
from pathlib import Path

import pytest

from service.cli.progress import Progress
from tests.local_hub import Blob, LocalHub, Repo
from tests.models import gguf_files

REPO = "local/one-GGUF"
_BAR = re.compile(r"\r\[#*\.*\] [|/\\-] \d+:\d\d \S")
_COLOUR = re.compile(r"\033\[\d+m")


@pytest.fixture(scope="module")
def hub() -> Iterator[LocalHub]:
    (file,) = gguf_files("Qwen3-0.6B", "q8_0")
    with LocalHub({REPO: Repo(lambda: {"m-Q8_0.gguf": Blob(file.head, len(file.head) + file.n_data)})}) as running:
        yield running


def on_a_terminal(hub: LocalHub, folder: Path, **environment: str) -> str:
    """Return all that `advisor advise` writes on a terminal of its own."""
    hand, terminal = pty.openpty()
    inherited = {name: value for name, value in os.environ.items() if name != "NO_COLOR"}
    told = {"HF_ENDPOINT": hub.endpoint, "ADVISOR_STATE_DIR": str(folder), "TERM": "xterm", **environment}
    words = [sys.executable, "-m", "service.cli", "advise", REPO, "-H", "RTX 3090, 64GB"]
    with subprocess.Popen(words, stdin=terminal, stdout=terminal, stderr=terminal, env=inherited | told) as command:
        os.close(terminal)
        shown = b"".join(iter(lambda: _read(hand), b""))
    os.close(hand)
    assert command.returncode == 0, shown
    return shown.decode()


def _read(hand: int) -> bytes:
    try:
        return os.read(hand, 1 << 16)
    except OSError:  # Linux says so when the other end is closed by all
        return b""


def as_seen(shown: str) -> list[str]:
    """Return the lines that are left on the screen: what follows a carriage return is written over what was there."""
    lines = []
    for line in _COLOUR.sub("", shown).replace("\r\n", "\n").split("\n"):
        seen = ""
        for part in line.split("\r"):
            seen = part + seen[len(part) :]
        lines.append(seen.rstrip())
    return lines


def test_a_terminal_gets_a_bar_that_goes_and_an_answer_in_colours(hub: LocalHub, tmp_path: Path) -> None:
    shown = on_a_terminal(hub, tmp_path)
    assert _BAR.search(shown)
    assert "reading headers: 1 of 1" in shown
    assert _COLOUR.search(shown)
    seen = as_seen(shown)
    assert not any(line.startswith("[") for line in seen)
    assert any(line.startswith("Yes: ") for line in seen)


@pytest.mark.full
def test_no_color_leaves_the_bar_and_no_colours(hub: LocalHub, tmp_path: Path) -> None:
    shown = on_a_terminal(hub, tmp_path, NO_COLOR="1")
    assert _BAR.search(shown)
    assert "\033" not in shown


def test_a_bar_keeps_to_the_width_of_the_terminal_and_to_all_and_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "40")
    terminal = StringIO()
    terminal.isatty = lambda: True  # type: ignore[method-assign]
    with Progress(terminal) as progress:
        progress.show(-1, "x" * 100)
        progress.show(2, "done")
        progress.line("this stays")
    bars = [part for part in terminal.getvalue().split("\r") if part.startswith("[")]
    assert [len(bar) for bar in bars] == [39, 39]
    assert [bar[:22] for bar in bars] == ["[" + "." * 20 + "]", "[" + "#" * 20 + "]"]
    assert as_seen(terminal.getvalue()) == ["this stays", ""]


def test_a_pipe_gets_each_line_once_and_nothing_to_move_about() -> None:
    pipe = StringIO()
    with Progress(pipe) as progress:
        for share, text in ((0.1, "waiting"), (0.2, "waiting"), (0.3, "measuring")):
            progress.show(share, text)
    assert pipe.getvalue() == "waiting\nmeasuring\n"
