"""From the form to the answer with scripts off, in Chromium and in Firefox; and what the first screen shows."""

from __future__ import annotations

import re
import time
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import expect

from service.store.advice import advices, queue
from tests.browser.firefox import firefox_running
from tests.browser.test_every_page import address
from tests.web.pages.site import NOW, Site, body

pytestmark = pytest.mark.full
_SECONDS = 40


def finish(filled: Site, page_address: str) -> str:
    """Finish the advice whose page this is, as a worker does; return its id."""
    advice_id = page_address.rpartition("/")[2]
    advices.note_progress(filled.context.engine, advice_id, "ranking configs", NOW)
    queue.finish(filled.context.engine, advice_id, body(), 0.0, NOW)
    return advice_id


def test_the_answer_arrives_in_chromium(filled: Site, chromium: Any) -> None:
    context = chromium.new_context(java_script_enabled=False)
    page = context.new_page()
    page.goto(address(filled, "start"))
    page.fill("#repo", "someone/Arrives-In-Chromium-GGUF")
    page.fill("#gpus", "RTX 3090")
    page.get_by_role("button", name="Advise me").click()
    expect(page.locator("h1")).to_have_text("Working on it")
    page.wait_for_url(re.compile(r"/advice/[\w-]{22}$"), timeout=_SECONDS * 1000)
    finish(filled, page.url)
    expect(page.locator(".card")).to_contain_text("Why this one", timeout=_SECONDS * 1000)
    context.close()


def test_the_answer_arrives_in_firefox(filled: Site, tmp_path: Path) -> None:
    with firefox_running(tmp_path, scripts=False) as firefox:
        firefox.open(address(filled, "start"))
        firefox.fill("#repo", "someone/Arrives-In-Firefox-GGUF")
        firefox.fill("#gpus", "RTX 3090")
        firefox.click("form.ask button")
        assert firefox.text("h1") == "Working on it"
        _until(lambda: re.search(r"/advice/[\w-]{22}$", firefox.address()))
        finish(filled, firefox.address())
        _until(lambda: "Why this one" in firefox.text("main"))


def _until(condition: Any) -> None:
    deadline = time.monotonic() + _SECONDS
    while not condition():
        assert time.monotonic() < deadline, "it does not come"
        time.sleep(0.5)


@pytest.mark.parametrize("scripts", [True, False], ids=["scripts", "no scripts"])
@pytest.mark.parametrize(("width", "height"), [(1280, 900), (390, 844)])
def test_the_first_screen_shows_the_sentence_and_the_command(
    filled: Site, chromium: Any, width: int, height: int, scripts: bool
) -> None:
    context = chromium.new_context(viewport={"width": width, "height": height}, java_script_enabled=scripts)
    page = context.new_page()
    page.goto(address(filled, "advice"))
    sentence, command = page.locator(".lead").bounding_box(), page.locator(".card .copy pre").nth(2).bounding_box()
    first_line = page.locator(".card .copy pre").nth(2).inner_text().split("\n")[0]
    context.close()
    assert sentence["y"] + sentence["height"] < height
    assert command["y"] + 60 < height, "less than three lines of the command are on the first screen"
    assert first_line.startswith("llama-server")
