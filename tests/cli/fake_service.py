"""A service that answers as it is told, over real HTTP on the loopback interface."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any

import msgspec

Answer = tuple[int, object]


class Asked(msgspec.Struct):
    """One request that came in."""

    method: str
    path: str
    headers: dict[str, str]
    body: bytes


class _Server(ThreadingHTTPServer):
    """Says nothing of clients that went away in the middle of a reply: what is printed is looked at."""

    def handle_error(self, request: Any, client_address: Any) -> None:
        if not isinstance(sys.exception(), OSError):
            super().handle_error(request, client_address)


class FakeService:
    """Answers `METHOD path` from `answers`: each a list of which the last one stays, or a function of the request.

    An answer of status 0 closes the connection. `streams`: the events of a path, one list for each connection.
    """

    def __init__(self) -> None:
        self.answers: dict[str, list[Answer] | Callable[[Asked], Answer]] = {}
        self.streams: dict[str, list[Sequence[object]]] = {}
        self.asked: list[Asked] = []
        self.streaming = threading.Event()
        self.hold_stream = False
        self._server = _Server(("127.0.0.1", 0), _handler(self))
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.01})

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_address[1]}"

    def __enter__(self) -> FakeService:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.hold_stream = False
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def answer(self, asked: Asked) -> Answer:
        self.asked.append(asked)
        found = self.answers.get(f"{asked.method} {asked.path}")
        if found is None:
            return 404, {"type": "x#not-found", "title": "Not found", "status": 404, "detail": "nothing is there"}
        if callable(found):
            return found(asked)
        return found.pop(0) if len(found) > 1 else found[0]


def _handler(service: FakeService) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            if self.path in service.streams:
                self._stream()
            else:
                self._answer()

        def do_POST(self) -> None:
            self._answer()

        def do_DELETE(self) -> None:
            self._answer()

        def _answer(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            status, value = service.answer(Asked(self.command, self.path, dict(self.headers), body))
            if not status:
                return
            data = value if isinstance(value, bytes) else msgspec.json.encode(value)
            self.send_response(status)
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def _stream(self) -> None:
            events = service.streams[self.path]
            self.send_response(200)
            self.end_headers()
            self.wfile.write(b": hello\n\n")
            for event in events.pop(0) if events else ():
                self.wfile.write(b"event: running\nid: 1\ndata: " + msgspec.json.encode(event) + b"\n\n")
            self.wfile.flush()
            service.streaming.set()
            while service.hold_stream:
                threading.Event().wait(0.01)

        def log_message(self, format: str, *args: Any) -> None:
            pass

    return Handler
