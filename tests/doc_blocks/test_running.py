"""The blocks of every page run, in order, and print what the page shows."""

from __future__ import annotations

import subprocess
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from tests.doc_blocks.blocks import PAGES, blocks_of
from tests.doc_blocks.running import DocRunner, doc_runner, programs
from tests.doc_blocks.writing import stale


def runs(page: Path) -> bool:
    return any(block.language in ("sh", "python") and "not run" not in block.comments for block in blocks_of(page))


@pytest.fixture(scope="module")
def at() -> Iterator[DocRunner]:
    with doc_runner() as started:
        yield started


def test_an_answer_that_takes_longer_than_a_page_waits_is_waited_for(tmp_path: Path) -> None:
    answers = [(202, b"queued"), (202, b"running"), (200, b"Yes"), (202, b"not asked for to wait")]

    class Slow(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            status, text = answers.pop(0)
            self.send_response(status)
            self.send_header("content-length", str(len(text)))
            self.end_headers()
            self.wfile.write(text)

        def log_message(self, *_: object) -> None: ...

    programs(tmp_path / "bin")
    with ThreadingHTTPServer(("127.0.0.1", 0), Slow) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        address = f"http://127.0.0.1:{server.server_port}/advice"
        waited, asked = (
            subprocess.run(["sh", tmp_path / "bin/curl", "-s", f"{address}{query}"], capture_output=True, check=True)
            for query in ("?wait=30", "")
        )
        server.shutdown()
    assert (waited.stdout, asked.stdout, answers) == (b"Yes", b"not asked for to wait", [])


@pytest.mark.full
@pytest.mark.timeout(450)
@pytest.mark.parametrize("page", [page for page in PAGES if runs(page)], ids=lambda page: page.name)
def test_the_blocks_of_a_page_run_and_print_what_it_shows(page: Path, at: DocRunner) -> None:
    outcome = at.run(page)
    assert outcome.failure is None, outcome.failure
    assert not stale(page, outcome)
