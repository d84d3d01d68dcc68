"""Firefox, driven by Marionette, its own remote protocol: no driver and no library is needed.

A packet is its length in bytes, a colon, and JSON: [0, id, command, parameters], answered by [1, id, error, result]
(Firefox, remote/marionette/transport.js and message.js).
"""

from __future__ import annotations

import json
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

_ELEMENT = "element-6066-11e4-a52e-4f735466cecf"  # the key of an element's id (W3C WebDriver, 12.1)
_PORT_FILE = "MarionetteActivePort"
_PREFERENCES = {"marionette.port": 0, "browser.shell.checkDefaultBrowser": False}


class Firefox:
    """One window. Elements are named by CSS selectors."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection, self._number = connection, 0
        self._receive()  # the greeting
        self.ask("WebDriver:NewSession", {})

    def open(self, address: str) -> None:
        """Load a page, until it is there."""
        self.ask("WebDriver:Navigate", {"url": address})

    def fill(self, selector: str, text: str) -> None:
        """Type into a field."""
        self.ask("WebDriver:ElementSendKeys", {"id": self._element(selector), "text": text})

    def click(self, selector: str) -> None:
        """Click, and wait for the page that this leads to."""
        self.ask("WebDriver:ElementClick", {"id": self._element(selector)})

    def press(self, key: str) -> None:
        """Press and release one key, by its character (W3C WebDriver, 17.4.2)."""
        strokes = [{"type": "keyDown", "value": key}, {"type": "keyUp", "value": key}]
        self.ask("WebDriver:PerformActions", {"actions": [{"type": "key", "id": "keyboard", "actions": strokes}]})

    def has(self, selector: str) -> bool:
        """Return whether the page has such an element."""
        return bool(self.ask("WebDriver:FindElements", {"using": "css selector", "value": selector}))

    def text(self, selector: str) -> str:
        """Return the text of an element as it is shown."""
        return str(self.ask("WebDriver:GetElementText", {"id": self._element(selector)})["value"])

    def address(self) -> str:
        """Return the address of the page."""
        return str(self.ask("WebDriver:GetCurrentURL", {})["value"])

    def ask(self, command: str, parameters: dict[str, Any]) -> Any:
        """Return what a command answers. Raises AssertionError with Firefox's own words."""
        self._number += 1
        packet = json.dumps([0, self._number, command, parameters]).encode()
        self._connection.sendall(str(len(packet)).encode() + b":" + packet)
        _, _, error, result = self._receive()
        assert error is None, f"{command}: {error['message']}"
        return result

    def _element(self, selector: str) -> str:
        found = self.ask("WebDriver:FindElement", {"using": "css selector", "value": selector})
        return str(found["value"][_ELEMENT])

    def _receive(self) -> Any:
        length = b""
        while (byte := self._connection.recv(1)) != b":":
            assert byte, "Firefox has ended"
            length += byte
        data = b""
        while len(data) < int(length):
            data += self._connection.recv(int(length) - len(data))
        return json.loads(data)


@contextmanager
def firefox_running(profile: Path, *, scripts: bool) -> Iterator[Firefox]:
    """Run Firefox in an empty profile for the block, with or without scripts of pages."""
    program = shutil.which("firefox-esr") or shutil.which("firefox")
    assert program, "Firefox is needed: apt-get install firefox-esr"
    preferences = {**_PREFERENCES, "javascript.enabled": scripts}
    lines = [f"user_pref({json.dumps(name)}, {json.dumps(value)});" for name, value in preferences.items()]
    (profile / "user.js").write_text("\n".join(lines))
    started = subprocess.Popen(
        [program, "--headless", "--no-remote", "--marionette", "--profile", str(profile)],
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env={"HOME": str(profile), "PATH": "/usr/bin:/bin"},
    )  # fmt: skip
    try:
        with socket.create_connection(("127.0.0.1", _port(profile, started)), timeout=60) as connection:
            yield Firefox(connection)
    finally:
        started.terminate()
        started.wait(30)


def _port(profile: Path, started: subprocess.Popen[bytes]) -> int:
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline and started.poll() is None:
        try:
            return int((profile / _PORT_FILE).read_text())
        except (OSError, ValueError):
            time.sleep(0.2)
    raise AssertionError("Firefox does not listen")
