"""Every page in a real browser: accessible in light and dark, on a phone, with nothing from outside."""

from __future__ import annotations

from typing import Any

import pytest

from tests.web.pages.site import Site

pytestmark = pytest.mark.full
PAGES = (
    *(
        "start",
        "advice",
        "running",
        "failed",
        "leaderboard",
        "nothing found",
        "models",
        "rigs",
        "no model",
        "check",
        "model",
        "hardware",
        "result",
    ),
    *("published", "quarantined", "compare", "nothing to compare", "accuracy", "submit", "hosts"),
    *(
        "contributor",
        "documentation",
        "found",
        "guide",
        "api",
        "add host",
        "problems",
        "about",
        "privacy",
        "terms",
        "removal",
        "moderation",
    ),
)
# What differs in the dark is colours.
_RULES: dict[str, Any] = {"light": {}, "dark": {"runOnly": {"type": "rule", "values": ["color-contrast"]}}}
PHONE, WIDE = {"width": 360, "height": 740}, {"width": 1280, "height": 900}


def address(filled: Site, name: str) -> str:
    return str(filled.client.base_url.join(filled.paths[name]))


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("name", PAGES)
def test_axe_finds_nothing(filled: Site, chromium: Any, axe: str, name: str, scheme: Any) -> None:
    context = chromium.new_context(color_scheme=scheme, viewport=WIDE, bypass_csp=True)  # to put axe into the page
    page = context.new_page()
    page.goto(address(filled, name))
    page.evaluate("document.querySelectorAll('details').forEach((one) => { one.open = true; })")
    page.add_script_tag(content=axe)
    found = page.evaluate("(options) => axe.run(options)", {"resultTypes": ["violations"], **_RULES[scheme]})
    context.close()
    assert [(v["id"], [n["html"][:200] for n in v["nodes"][:3]]) for v in found["violations"]] == []
    assert len(found["passes"]) >= (1 if scheme == "dark" else 10)


@pytest.mark.parametrize("scripts", [True, False], ids=["scripts", "no scripts"])
@pytest.mark.parametrize("name", PAGES)
def test_a_page_asks_nobody_else_keeps_its_policy_and_fits_a_phone(
    filled: Site, chromium: Any, name: str, scripts: bool
) -> None:
    context = chromium.new_context(viewport=PHONE, java_script_enabled=scripts)
    page = context.new_page()
    asked: list[str] = []
    said: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    page.on("console", lambda message: said.append(message.text))
    page.on("pageerror", lambda error: said.append(str(error)))
    page.goto(address(filled, name), wait_until="load")
    widths = page.locator("html").evaluate("(html) => [html.scrollWidth, html.clientWidth]") if scripts else [0, 0]
    heading = page.locator("h1").inner_text()
    cookies = context.cookies()
    context.close()
    assert [url for url in asked if not url.startswith(str(filled.client.base_url))] == []
    assert said == []
    assert widths[0] <= widths[1], "the page scrolls sideways on a phone"
    assert heading
    assert cookies == []


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_page_follows_the_colours_asked_for(filled: Site, chromium: Any, scheme: Any) -> None:
    page = chromium.new_page(color_scheme=scheme)
    page.goto(address(filled, "start"))
    background = page.evaluate("getComputedStyle(document.body).backgroundColor")
    page.close()
    assert (background == "rgb(255, 255, 255)") == (scheme == "light")
