"""The README's curl lines, run as they are printed there against a running service."""

from __future__ import annotations

import re
import shlex
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.demo import service_running
from tests.local_hub import LocalHub

README = (Path(__file__).parent.parent / "README.md").read_text()
PRINTED = "http://127.0.0.1:8000"


def curl_lines() -> list[str]:
    block = README.split("<!-- curl: begin -->")[1].split("<!-- curl: end -->")[0]
    return [line for line in block.replace("\\\n", " ").splitlines() if line.startswith("curl ")]


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with LocalHub() as hub, service_running(hub.endpoint) as url:
        yield url


@pytest.mark.parametrize("line", curl_lines(), ids=lambda line: re.search(r"/v1/\w+", line)[0])  # type: ignore[index]
def test_a_printed_curl_line_is_answered(line: str, url: str) -> None:
    assert PRINTED in line
    words = shlex.split(line.replace(PRINTED, url))
    reply = subprocess.run([*words, "-w", "\n%{http_code}"], check=True, capture_output=True, text=True).stdout
    body, _, status = reply.rpartition("\n")
    assert status == "200", body
    assert len(body) > 200
