"""The page that checks a command: the answer below its form, errors at their fields, and nothing typed is lost."""

from __future__ import annotations

from html import unescape

import httpx
import pytest

from tests.web.pages.test_pages import Tags
from tests.web.world import READY_REPO

HTML = {"accept": "text/html"}
TYPED = {"command": "llama-server -m Qwen3-0.6B-Q8_0.gguf -c 4096 -ngl 99", "hardware": "RTX 3090, 64GB"}


def test_a_command_is_checked(client: httpx.Client) -> None:
    reply = client.post("/check", data={**TYPED, "repo": f"{READY_REPO}:Q8_0"}, headers=HTML)
    assert reply.status_code == 200
    for part in ("<h2>Fits</h2>", "TG about ", "Memory, MiB", "Speed by depth", "Findings", "-ngl 99"):
        assert part in reply.text


def test_what_memory_rests_on_does_not_read_as_a_measurement_of_this_run(client: httpx.Client) -> None:
    page = client.post("/check", data={**TYPED, "repo": f"{READY_REPO}:Q8_0"}, headers=HTML).text
    assert '<td class="faint">rules confirmed by recorded runs</td>' in page
    assert '<td class="faint">measured</td>' not in page


def test_a_command_that_does_not_start_is_not_said_to_fit(client: httpx.Client) -> None:
    command = "llama-server -m Qwen3-0.6B-Q8_0.gguf -c 4096 -ngl 99 -fa"
    reply = client.post("/check", data={**TYPED, "command": command, "repo": f"{READY_REPO}:Q8_0"}, headers=HTML)
    assert "<h2>Does not start with today&#39;s build</h2>" in reply.text
    assert "Corrected, it fits: TG about" in reply.text
    assert '[<a href="/docs/rules#retired-flag">retired-flag</a>]<br>Fix: <code>-fa on</code>' in reply.text


def test_a_corrected_command_has_its_figures(client: httpx.Client) -> None:
    command = "llama-server -m Qwen3-0.6B-Q8_0.gguf -c 4096 -ngl 99 -fa"
    page = client.post("/check", data={**TYPED, "command": command, "repo": f"{READY_REPO}:Q8_0"}, headers=HTML).text
    _, _, below = page.partition("<h2>Corrected command</h2>")
    assert below.startswith("<p>As a whole: TG ")
    assert " at 0 tokens; fits: CUDA0 " in below.partition("</p>")[0]
    assert " free), CPU " in below.partition("</p>")[0]


@pytest.mark.parametrize(("wrong", "field"), [({"command": ""}, "command"), ({"hardware": "RTX 9999"}, "hardware")])
def test_an_error_stands_at_its_field(client: httpx.Client, wrong: dict[str, str], field: str) -> None:
    reply = client.post("/check", data={**TYPED, "repo": READY_REPO, **wrong}, headers=HTML)
    assert reply.status_code == 422
    marked = [found["id"] for _, found in Tags(reply.text).tags if found.get("aria-invalid") == "true"]
    assert marked == [field]
    assert READY_REPO in unescape(reply.text)
