"""The documentation as `make docs` builds it: all that a page loads is in the folder, and a browser is content."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import threading
from collections.abc import Iterator
from functools import partial
from html.parser import HTMLParser
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.full
ROOT = Path(__file__).parent.parent.parent
PAGES = ("index.html", "quickstart.html", "self-hosting.html", "api.html", "cli.html", "memory.html")
# Links that are there to be followed; whatever else has an address is loaded with the page.
_FOLLOWED = {("a", "href"), ("link", "canonical")}
# Parts of the theme that are asked for only by pages with diagrams, by browsers of before 2020, or where a repository
# is shown: no page has the first and the last.
_NOT_ASKED_FOR = {"https://unpkg.com/mermaid", "https://unpkg.com/resize-observer-polyfill", "https://api.github.com"}


class Loaded(HTMLParser):
    """Collects the addresses that a page makes a browser load."""

    def __init__(self) -> None:
        super().__init__()
        self.addresses: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        said = dict(attrs)
        for name in ("src", "srcset", "href", "data", "poster", "action"):
            if said.get(name) and (tag, name) not in _FOLLOWED and (tag, said.get("rel")) not in _FOLLOWED:
                self.addresses.append(str(said[name]))


class Handler(SimpleHTTPRequestHandler):
    def log_message(self, *arguments: object) -> None:
        """Say nothing."""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    built = tmp_path_factory.mktemp("documentation") / "site"
    words = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(built)]
    environment = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}
    done = subprocess.run(words, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return built


@pytest.fixture(scope="module")
def address(folder: Path) -> Iterator[str]:
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(Handler, directory=str(folder))) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}/"
        server.shutdown()
        thread.join()


def test_every_page_is_built_and_loads_nothing_from_elsewhere(folder: Path) -> None:
    pages = list(folder.glob("*.html"))
    assert {page.stem for page in pages} >= {page.stem for page in (ROOT / "docs").glob("*.md")}
    for page in pages:
        read = Loaded()
        read.feed(page.read_text())
        assert [one for one in read.addresses if re.match(r"\w+:|//", one) and not one.startswith("data:")] == []
        assert 'class="mermaid"' not in page.read_text()


def test_neither_styles_nor_scripts_name_an_address_that_a_page_would_ask_for(folder: Path) -> None:
    for style in folder.rglob("*.css"):
        assert re.findall(r"(?:url\(|@import)\s*['\"]?((?:https?:)?//[^)'\"]+)", style.read_text()) == []
    for script in (folder / "assets" / "javascripts").glob("*.js"):
        asked = re.findall(r"""["'`](https?://(?!www\.w3\.org/)[\w.]+(?:/[\w-]+)?)""", script.read_text())
        known = [one for one in asked if any(one.startswith(part) for part in _NOT_ASKED_FOR)]
        assert [one for one in asked if one not in known and "clipboardjs" not in one] == []


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("name", PAGES)
def test_axe_finds_nothing_and_nobody_else_is_asked(
    address: str, chromium: Any, axe: str, name: str, scheme: Any
) -> None:
    context = chromium.new_context(color_scheme=scheme, viewport={"width": 1280, "height": 900})
    page = context.new_page()
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    page.goto(address + name, wait_until="networkidle")
    page.add_script_tag(content=axe)
    found = page.evaluate("() => axe.run({resultTypes: ['violations']})")
    context.close()
    assert [url for url in asked if not url.startswith((address, "data:"))] == []
    assert [(v["id"], [n["html"][:200] for n in v["nodes"][:3]]) for v in found["violations"]] == []


def test_the_search_finds_what_is_looked_for_without_asking_anybody(address: str, chromium: Any) -> None:
    page = chromium.new_page()
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    page.goto(address + "index.html", wait_until="networkidle")  # what listens to the field is loaded by then
    page.locator("input.md-search__input").click()
    page.locator("input.md-search__input").press_sequentially("KV cache")
    first = page.locator(".md-search-result__item a").first
    first.wait_for()
    titles = page.locator(".md-search-result__item").all_inner_texts()
    page.close()
    assert any("cache" in title.lower() for title in titles)
    assert [url for url in asked if not url.startswith((address, "data:", "blob:"))] == []
