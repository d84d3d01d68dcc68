"""A service of a few lines: it checks what every agent call must carry, and answers as a test says."""

from __future__ import annotations

import base64
import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from nacl.signing import VerifyKey

from service.wire.measuring.agent import signed_text
from workers.agent.state import ENROLLED, HostKey, State, make_key

HOST = "h" * 22
Answer = tuple[int, Any]


class FakeService:
    """`answers`: by path, a list that is used up, its last one for ever, or a function of the body."""

    def __init__(self) -> None:
        self.answers: dict[str, list[Answer] | Callable[[Any], Answer]] = {
            "/v1/agent/sessions": [(201, {"token": "ahs_" + "a" * 43, "expires_in": 3600, "state": "active"})],
            "/v1/agent/probe": [(204, None)],
            "/v1/agent/leases": [(204, None)],
            "/v1/agent/leave": [(204, None)],
        }
        self.calls: list[tuple[str, Any]] = []
        self.about: list[tuple[str, str | None]] = []  # each path, and the request that it belongs to
        self.counters: list[int] = []
        self.key: VerifyKey | None = None
        self.last_counter = 0
        self.address = ""

    def bodies(self, path: str) -> list[Any]:
        """Return what was sent to paths that end in `path`, in order."""
        return [body for called, body in self.calls if called.endswith(path)]

    def answer(self, path: str, headers: Any, data: bytes) -> Answer:
        if self.key is not None and path not in ("/v1/agent/greeting", "/v1/agent/hosts"):
            refusal = self._refusal(self.key, path, headers, data)
            if refusal:
                return refusal
        body = json.loads(data)
        self.calls.append((path, body))
        self.about.append((path, headers["X-Request-ID"]))
        answers = self.answers.get(path) or next(
            (found for end, found in self.answers.items() if path.endswith(end)), [problem(404, "not-found")]
        )
        if callable(answers):
            return answers(body)
        return answers.pop(0) if len(answers) > 1 else answers[0]

    def _refusal(self, key: VerifyKey, path: str, headers: Any, data: bytes) -> Answer | None:
        counter = int(headers["Advisor-Counter"])
        authority = self.address.partition("//")[2]
        text = signed_text(authority, "POST", path, HOST, counter, data)
        key.verify(text, base64.b64decode(headers["Advisor-Signature"]))
        assert headers["Advisor-Host"] == HOST
        assert headers["Accept-Encoding"] == "identity"
        if counter <= self.last_counter:
            return problem(409, "counter-too-small", choices=[str(self.last_counter)])
        self.last_counter = counter
        self.counters.append(counter)
        bearer = headers["Authorization"]
        if path != "/v1/agent/sessions" and bearer != f"Bearer ahs_{'a' * 43}":
            return problem(401, "session-expired")
        return None


def problem(status: int, slug: str, **more: Any) -> Answer:
    """Return a problem as the service writes it."""
    return status, {
        "type": f"/docs/problems#{slug}",
        "title": slug,
        "status": status,
        "detail": f"so it is: {slug}",
    } | more


@contextmanager
def fake_service() -> Iterator[FakeService]:
    """Serve on a free loopback port for the length of the block."""
    service = FakeService()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            data = self.rfile.read(int(self.headers["Content-Length"]))
            status, value = service.answer(self.path, self.headers, data)
            body = b"" if value is None else value if isinstance(value, bytes) else json.dumps(value).encode()
            self.send_response(status)
            if 300 <= status < 400:
                self.send_header("Location", "http://127.0.0.1:1/")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *arguments: Any) -> None:
            return

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    service.address = f"http://127.0.0.1:{server.server_port}"
    try:
        yield service
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def enrolled(service: FakeService, state: State) -> HostKey:
    """Put a key and an enrolment into a state folder, and let the service know the key."""
    state.make()
    key = make_key(state)
    service.key = VerifyKey(base64.b64decode(key.public))
    said = {"service": service.address, "host": HOST, "pseudonym": "quiet-otter-7", "owner": "ada"}
    state.write(ENROLLED, json.dumps(said).encode())
    return key
