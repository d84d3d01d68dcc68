"""Using the pages: with scripts and without, by keyboard alone, and while something goes on."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pytest
from playwright.sync_api import Page, expect

from service.queue.progress import publish
from service.store.advice import advices, queue
from service.wire.advice.advice import AdviceEvent
from tests.browser.test_every_page import PHONE, address
from tests.web.pages.site import NOW, READY, RUNNING, Site, body

pytestmark = pytest.mark.full


@pytest.fixture(params=[True, False], ids=["scripts", "no scripts"])
def page(request: pytest.FixtureRequest, chromium: Any) -> Iterator[Page]:
    context = chromium.new_context(viewport=PHONE, java_script_enabled=request.param)
    yield context.new_page()
    context.close()


@pytest.fixture
def scripted(chromium: Any) -> Iterator[Page]:
    context = chromium.new_context(permissions=["clipboard-read", "clipboard-write"])
    yield context.new_page()
    context.close()


def test_the_form_leads_to_an_advice(filled: Site, page: Page) -> None:
    page.goto(address(filled, "start"))
    page.fill("#repo", "someone/Other-GGUF")
    page.fill("#gpus", "2x RTX 3090 + RTX 4090")
    page.fill("#ram", "64GB DDR4-3200")
    page.get_by_role("button", name="Advise me").click()
    expect(page).to_have_url(re.compile("/advice/"))
    expect(page.locator("h1")).to_contain_text("someone/Other-GGUF")
    expect(page.locator("body")).to_contain_text("waiting for a worker")


def test_an_error_is_next_to_its_field_and_what_was_typed_is_there(filled: Site, page: Page) -> None:
    page.goto(address(filled, "start"))
    page.fill("#repo", "someone/Other-GGUF")
    page.fill("#gpus", "RTX 9999")
    page.get_by_role("button", name="Advise me").click()
    expect(page.get_by_role("alert")).to_be_visible()
    expect(page.locator("#gpus")).to_have_attribute("aria-invalid", "true")
    expect(page.locator("#repo")).to_have_value("someone/Other-GGUF")
    expect(page.locator("#gpus")).to_have_value("RTX 9999")


def test_the_keyboard_alone_is_enough(filled: Site, page: Page) -> None:
    page.goto(address(filled, "start"))
    page.keyboard.press("Tab")
    expect(page.locator(":focus")).to_have_text("Skip to the content")
    page.keyboard.press("Enter")
    page.keyboard.press("Tab")
    expect(page.locator("#repo")).to_be_focused()
    page.keyboard.type("someone/Other-GGUF")
    page.keyboard.press("Tab")
    page.keyboard.type("RTX 3090")
    page.keyboard.press("Enter")
    expect(page.locator("h1")).to_contain_text("someone/Other-GGUF")


def test_filters_are_the_address_of_the_board(filled: Site, page: Page) -> None:
    page.goto(address(filled, "leaderboard") + "?trust=self-reported")
    page.select_option("#engine", "llama.cpp")
    page.get_by_role("button", name="Show").click()
    assert "engine=llama.cpp" in page.url
    engines = page.locator("table tbody tr td:nth-of-type(5)").all_inner_texts()
    assert set(engines) == {"llama.cpp"}
    page.goto(page.url)
    expect(page.locator("#engine")).to_have_value("llama.cpp")


def test_going_back_shows_the_filters_of_the_results_shown(filled: Site, page: Page) -> None:
    page.goto(address(filled, "leaderboard"))
    page.select_option("#engine", "llama.cpp")
    page.get_by_role("button", name="Show").click()
    page.wait_for_url("**/leaderboard?**engine=llama.cpp**")
    page.go_back()
    expect(page).to_have_url(address(filled, "leaderboard"))
    expect(page.locator("#engine")).to_have_value("")


@pytest.mark.parametrize("name", ["leaderboard", "model", "result"])
def test_tables_of_results_are_printed(filled: Site, page: Page, name: str) -> None:
    page.goto(address(filled, name))
    page.emulate_media(media="print")
    rows = page.locator("tbody tr")
    assert rows.count() == rows.filter(visible=True).count() > 0
    assert page.locator("button, input").filter(visible=True).count() == 0


def test_ticked_results_are_compared(filled: Site, page: Page) -> None:
    page.goto(address(filled, "leaderboard") + "?trust=self-reported")
    boxes = page.locator("input[name=ids]")
    boxes.nth(0).check()
    boxes.nth(1).check()
    page.get_by_role("button", name="Compare selected").click()
    expect(page.locator("h1")).to_have_text("Results compared")
    assert page.locator("svg.curves").first.locator("polyline").count() == 2


def test_a_command_is_copied_as_it_stands(filled: Site, scripted: Page) -> None:
    scripted.goto(address(filled, "advice"))
    scripted.get_by_role("button", name="Copy: 3. Run").click()
    copied = scripted.evaluate("navigator.clipboard.readText()")
    assert copied == scripted.locator(".card .copy pre").nth(2).inner_text()
    assert "llama-server" in copied


def test_the_key_leaves_the_address_and_waits_in_its_field(filled: Site, scripted: Page) -> None:
    scripted.goto(address(filled, "advice") + "#key=secret-1")
    expect(scripted).to_have_url(address(filled, "advice"))
    expect(scripted.locator("#key")).to_have_value("secret-1")
    scripted.reload()
    expect(scripted.locator("#key")).to_have_value("secret-1")


@pytest.mark.parametrize("page", ["own", "advice"])
def test_the_key_of_what_was_just_made_is_shown_to_be_kept(filled: Site, scripted: Page, page: str) -> None:
    scripted.goto(address(filled, page))
    expect(scripted.locator("#keep")).to_be_hidden()
    scripted.goto(address(filled, page) + "#key=secret-2")
    scripted.reload()
    expect(scripted.locator("#keep")).to_contain_text("secret-2")
    expect(scripted.locator("#keep")).to_be_visible()


def test_several_gpus_are_completed_one_after_the_other(filled: Site, scripted: Page) -> None:
    scripted.goto(address(filled, "start"))
    scripted.fill("#gpus", "2x RTX 3090 + 4x rtx 40")
    offered = scripted.evaluate("Array.from(document.getElementById('gpus').list.options, (one) => one.value)")
    assert "2x RTX 3090 + 4x RTX 4090" in offered


def test_what_goes_on_is_seen_live_and_then_the_advice(filled: Site, scripted: Page) -> None:
    scripted.goto(address(filled, "running"))
    engine, redis = filled.context.engine, filled.context.redis
    advices.note_progress(engine, RUNNING, "ranking configs", NOW)
    publish(redis, AdviceEvent(RUNNING, "running", "ranking configs"))
    expect(scripted.locator("#follow")).to_have_text("ranking configs")
    queue.finish(engine, RUNNING, body(), 0.0, NOW)
    publish(redis, AdviceEvent(RUNNING, "ready", None))
    expect(scripted.get_by_role("heading", name="Alternatives")).to_be_visible(timeout=10_000)
    assert READY not in scripted.url
