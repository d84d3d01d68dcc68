"""Chromium on a filled site. `npm ci` in this folder fetches axe-core; `make test-full` does it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from redis import Redis

from service.queue.embedded import EmbeddedValkey
from tests.valkeys import valkey
from tests.web.pages.site import Site, site

__all__ = ["valkey"]
CHROMIUM = Path("/usr/bin/chromium")
AXE = Path(__file__).parent / "node_modules" / "axe-core" / "axe.min.js"


@pytest.fixture(scope="session")
def filled(tmp_path_factory: pytest.TempPathFactory, valkey: EmbeddedValkey) -> Iterator[Site]:
    with Redis.from_url(valkey.url) as redis, site(tmp_path_factory.mktemp("site"), valkey, redis) as made:
        yield made


@pytest.fixture(scope="package")  # while it is open its event loop runs, and no test of ours may have another
def chromium() -> Iterator[Any]:
    from playwright.sync_api import sync_playwright

    assert CHROMIUM.exists(), "Chromium is needed: apt-get install chromium"
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=str(CHROMIUM), args=["--no-sandbox"])
        yield browser
        browser.close()


@pytest.fixture(scope="session")
def axe() -> str:
    assert AXE.exists(), "axe-core is needed: npm ci --prefix tests/browser"
    return AXE.read_text()
