"""Real clients of the Model Context Protocol ask for advice: the official SDKs of Python and TypeScript."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import Iterator
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any

import pytest

from tests.clients.test_clients import HERE, REPO, run, tool
from tests.local_hub import LocalHub
from tests.web.stack import running_service

HARDWARE = "RTX 3090, Ryzen 9 7950X, 128GB DDR5-5600"
ADVISOR = str(Path(sys.executable).parent / "advisor")
pytestmark = pytest.mark.full


@pytest.fixture(scope="module")
def hub() -> Iterator[LocalHub]:
    with LocalHub() as hub:
        yield hub


@pytest.fixture(scope="module")
def address(hub: LocalHub, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with running_service(tmp_path_factory.mktemp("mcp"), hub.endpoint) as service:
        yield f"{str(service.base_url).rstrip('/')}/mcp"


@pytest.fixture
def environment(hub: LocalHub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    stated = {"HF_ENDPOINT": hub.endpoint, "ADVISOR_CACHE_DIR": str(tmp_path)}
    for name, value in stated.items():
        monkeypatch.setenv(name, value)
    return {**os.environ}


async def asked(
    transport: AbstractAsyncContextManager[Any] | str, mode: str
) -> tuple[list[str], str, list[tuple[float, str | None]]]:
    """Return the tools, the text of an advice, and its progress, as the Python SDK's client gets them."""
    from mcp.client import Client

    told: list[tuple[float, str | None]] = []

    async def hear(progress: float, total: float | None, message: str | None) -> None:
        told.append((progress / (total or 1), message))

    async with Client(transport, mode=mode) as client:
        tools = [tool.name for tool in (await client.list_tools()).tools]
        asked = {"repo": REPO, "hardware": HARDWARE}
        result = await client.call_tool("advise", asked, progress_callback=hear)
        assert not result.is_error, result
        return tools, result.content[0].text, told  # type: ignore[union-attr]


def is_the_advice(text: str) -> None:
    assert text.startswith("Yes: ")
    assert "llama-server" in text


@pytest.mark.parametrize("mode", ["auto", "legacy", "2026-07-28"])
def test_the_python_sdk_asks_for_advice_over_http_in_each_era(address: str, mode: str) -> None:
    tools, text, _ = asyncio.run(asked(address, mode))
    assert tools == ["advise", "check", "inspect", "leaderboard", "hardware"]
    is_the_advice(text)


@pytest.mark.parametrize("mode", ["auto", "legacy", "2026-07-28"])
def test_the_python_sdk_asks_for_advice_on_stdio_in_each_era(environment: dict[str, str], mode: str) -> None:
    from mcp.client.stdio import StdioServerParameters, stdio_client

    server = StdioServerParameters(command=ADVISOR, args=["mcp"], env=environment)
    tools, text, told = asyncio.run(asked(stdio_client(server), mode))
    assert tools == ["advise", "check", "inspect", "hardware"]
    is_the_advice(text)
    shares = [share for share, _ in told]
    assert len(shares) > 3
    assert shares == sorted(shares)
    assert any("placing configs" in (message or "") for _, message in told)


def test_the_typescript_sdk_asks_for_advice_over_http_and_on_stdio(address: str, environment: dict[str, str]) -> None:
    tool("tsc")  # npm ci was run
    for where in (address, ADVISOR):
        said = json.loads(run("node", str(HERE / "use_mcp.mjs"), where, REPO, HARDWARE))
        assert "advise" in said["tools"]
        is_the_advice(said["text"])
