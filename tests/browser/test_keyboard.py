"""By keyboard alone from the question to the answer, a submission and the board; two browsers, scripts on and off."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Protocol

import pytest
from playwright.sync_api import Page
from redis import Redis

from service.queue.embedded import EmbeddedValkey
from tests.browser.firefox import Firefox, firefox_running
from tests.browser.test_every_page import address
from tests.browser.test_without_scripts import finish
from tests.flows.results.submitted import COMMAND, RIG, sweep
from tests.local_hub import LocalHub
from tests.web.pages.site import Site, site

pytestmark = pytest.mark.full
_SECONDS = 120
_MOST_TABS = 150  # of one page: the form has some forty fields and links


class Keyboard(Protocol):
    """What a person without a pointer can do: press keys, type, and see what has the focus."""

    def open(self, address: str) -> None: ...
    def press(self, key: str) -> None: ...
    def type(self, text: str) -> None: ...
    def has(self, selector: str) -> bool: ...
    def text(self, selector: str) -> str: ...
    def address(self) -> str: ...


class OfChromium:
    """The keyboard of Playwright."""

    def __init__(self, page: Page) -> None:
        self._page = page

    def open(self, address: str) -> None:
        self._page.goto(address)

    def press(self, key: str) -> None:
        self._page.wait_for_load_state()
        self._page.keyboard.press(key)

    def type(self, text: str) -> None:
        self._page.keyboard.insert_text(text)

    def has(self, selector: str) -> bool:
        return self._page.locator(selector).count() > 0

    def text(self, selector: str) -> str:
        return self._page.locator(selector).inner_text()

    def address(self) -> str:
        self.has("html")  # Playwright hears where the page went while it is asked something
        return self._page.url


class OfFirefox:
    """The keyboard of Marionette."""

    def __init__(self, firefox: Firefox) -> None:
        self._firefox = firefox
        self.open, self.has, self.text, self.address = firefox.open, firefox.has, firefox.text, firefox.address

    def press(self, key: str) -> None:
        self._firefox.press({"Tab": "\ue004", "Enter": "\ue007"}[key])

    def type(self, text: str) -> None:
        self._firefox.fill(":focus", text)


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory, valkey: EmbeddedValkey) -> Iterator[Site]:
    """The filled site with a Hub, which a submission needs."""
    folder = tmp_path_factory.mktemp("served")
    with LocalHub() as hub, Redis.from_url(valkey.url) as redis, site(folder, valkey, redis, hub=hub.endpoint) as made:
        yield made


@pytest.fixture(params=[True, False], ids=["scripts", "no scripts"])
def scripts(request: pytest.FixtureRequest) -> bool:
    return bool(request.param)


@contextmanager
def of_chromium(browser: Any, scripts: bool) -> Iterator[Keyboard]:
    context = browser.new_context(java_script_enabled=scripts)
    yield OfChromium(context.new_page())
    context.close()


def go_to(keyboard: Keyboard, selector: str) -> None:
    """Press Tab until an element has the focus."""
    for _ in range(_MOST_TABS):
        if keyboard.has(f"{selector}:focus"):
            return
        keyboard.press("Tab")
    raise AssertionError(f"no number of tabs leads to {selector}")


def write(keyboard: Keyboard, selector: str, text: str) -> None:
    go_to(keyboard, selector)
    keyboard.type(text)


def follow(keyboard: Keyboard, selector: str, until: Callable[[], Any]) -> None:
    """Press Enter on a link or button, and wait for what it leads to, to its end.

    A browser may lose a key that is pressed while it still loads the page: who sees nothing happen presses it again.
    """
    for seconds in (15, 30, _SECONDS):
        go_to(keyboard, selector)
        keyboard.press("Enter")
        if comes(lambda: until() and keyboard.has("footer"), seconds):
            return
    raise AssertionError(f"{selector} leads nowhere from {keyboard.address()}: {keyboard.text('main')[:2000]}")


def wait(keyboard: Keyboard, condition: Callable[[], Any]) -> None:
    assert comes(condition, _SECONDS), f"{keyboard.address()} stays as it is: {keyboard.text('main')[:2000]}"


def comes(condition: Callable[[], Any], seconds: float) -> bool:
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if condition():
            return True
        time.sleep(0.2)
    return False


def walk(keyboard: Keyboard, served: Site, owner: str) -> None:
    """Ask about a repo of `owner`, read the answer, submit what was measured, and find it on the board."""
    keyboard.open(address(served, "start"))
    write(keyboard, "#repo", f"{owner}/By-Keyboard-GGUF")
    write(keyboard, "#gpus", "RTX 3090")
    keyboard.press("Enter")
    wait(keyboard, lambda: re.search(r"/advice/[\w-]{22}$", keyboard.address()))
    finish(served, keyboard.address())
    wait(keyboard, lambda: keyboard.has(".card"))
    follow(keyboard, "nav a[href='/submit']", lambda: keyboard.has("textarea#text"))
    write(keyboard, "#text", f"$ {COMMAND}\n\n{sweep(tg=100.0 + 10 * len(owner))}")
    write(keyboard, "#hardware", RIG)
    follow(keyboard, "button[value='preview']", lambda: keyboard.has("#understood"))
    follow(keyboard, "button[value='keep']", lambda: re.search(r"/results/[\w-]+", keyboard.address()))
    follow(keyboard, "nav a[href='/leaderboard']", lambda: keyboard.has("search form"))
    follow(keyboard, "a[href='/leaderboard?trust=self-reported']", lambda: "trust=" in keyboard.address())
    follow(keyboard, "a[href='/models/qwen3-0.6b']", lambda: keyboard.address().endswith("/models/qwen3-0.6b"))
    follow(keyboard, "main a[href^='/results/']", lambda: "/results/" in keyboard.address())


def test_chromium_needs_no_pointer(served: Site, chromium: Any, scripts: bool) -> None:
    with of_chromium(chromium, scripts) as keyboard:
        walk(keyboard, served, "chromium" + scripts * "-scripted")


def test_firefox_needs_no_pointer(served: Site, tmp_path: Path, scripts: bool) -> None:
    with firefox_running(tmp_path, scripts=scripts) as firefox:
        walk(OfFirefox(firefox), served, "firefox" + scripts * "-scripted")
