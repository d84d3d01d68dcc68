"""Known dangers fail `make check`; that nobody could be asked does not, and is said."""

from __future__ import annotations

import json
import subprocess
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest

from scripts.audit import Finding, Package, Vulnerability, audit_dependencies, code_verdict, dependency_verdict

REQUIREMENTS = "wheel==0.30.0 --hash=sha256:" + "0" * 64 + "\nidna==3.10 --hash=sha256:" + "1" * 64 + "\n"
SKIPPED = Package("idna", skip_reason="not found")
CLEAN = Package("wheel", "0.50.0")
KNOWN = Package("wheel", "0.30.0", vulns=(Vulnerability("PYSEC-2022-43017", ("0.38.1",)),))


def test_a_known_vulnerability_fails_and_says_its_fix() -> None:
    assert dependency_verdict([CLEAN]).passes
    verdict = dependency_verdict([CLEAN, KNOWN])
    assert verdict == (["wheel 0.30.0: PYSEC-2022-43017, fixed in 0.38.1"], False)


@pytest.mark.parametrize("packages", [None, [], [SKIPPED, SKIPPED]])
def test_that_nobody_could_be_asked_is_said_and_fails_nothing(packages: list[Package] | None) -> None:
    lines, passes = dependency_verdict(packages)
    assert passes
    assert lines[0].startswith("NOT AUDITED")


def test_an_answer_for_some_only_fails() -> None:
    lines, passes = dependency_verdict([CLEAN, SKIPPED])
    assert (lines, passes) == (["idna: not audited: not found"], False)


def test_an_exception_is_for_one_rule_on_one_line(tmp_path: Path) -> None:
    (tmp_path / "code.py").write_text("eval(x)  # noqa: S307 (ours)\neval(x)\neval(x)  # noqa: E501, S101\n")
    found = [Finding("B307", "code.py", line, "eval", "") for line in (1, 2, 3)]
    assert code_verdict(found, tmp_path) == (["code.py:2: B307 eval", "code.py:3: B307 eval"], False)
    assert code_verdict(found[:1], tmp_path).passes


class Advisories(BaseHTTPRequestHandler):
    """Stands in for an advisory service that speaks OSV's protocol."""

    def do_POST(self) -> None:
        asked = json.loads(self.rfile.read(int(self.headers["content-length"])))
        affected = {"package": asked["package"], "ranges": [{"type": "ECOSYSTEM", "events": [{"fixed": "0.38.1"}]}]}
        known = {"id": "PYSEC-2022-43017", "affected": [affected], "summary": "x"}
        found = {"vulns": [known]} if asked["version"] == "0.30.0" else {}
        body = json.dumps(found).encode()
        self.send_response(200)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Print nothing."""


@pytest.fixture
def advisories() -> Iterator[str]:
    with HTTPServer(("127.0.0.1", 0), Advisories) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.02,))
        thread.start()
        yield f"http://127.0.0.1:{server.server_address[1]}/v1/query"
        server.shutdown()
        thread.join()


@pytest.fixture
def requirements(tmp_path: Path) -> Path:
    path = tmp_path / "requirements.txt"
    path.write_text(REQUIREMENTS)
    return path


@pytest.mark.full
def test_a_service_that_knows_something_is_heard(advisories: str, requirements: Path) -> None:
    verdict = audit_dependencies(requirements, [["-s", "osv", "--osv-url", advisories]])
    assert verdict == (["wheel 0.30.0: PYSEC-2022-43017, fixed in 0.38.1"], False)


@pytest.mark.full
def test_the_next_service_is_asked_where_one_does_not_answer(advisories: str, requirements: Path) -> None:
    nobody = ["-s", "osv", "--osv-url", "http://127.0.0.1:1/v1/query"]
    assert not audit_dependencies(requirements, [nobody, ["-s", "osv", "--osv-url", advisories]]).passes
    assert audit_dependencies(requirements, [nobody]).lines[0].startswith("NOT AUDITED")


@pytest.mark.full
def test_requirements_that_cannot_be_read_are_no_audit_that_passes(tmp_path: Path) -> None:
    (tmp_path / "requirements.txt").write_text("wheel>=0.30\n")
    with pytest.raises(subprocess.CalledProcessError):
        audit_dependencies(tmp_path / "requirements.txt", [["-s", "osv", "--osv-url", "http://127.0.0.1:1/"]])
