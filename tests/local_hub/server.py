"""Two real HTTP servers in threads: the Hub's API with its redirects, and the host that files are served from."""

from __future__ import annotations

import contextlib
import json
import re
import socket
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Literal
from urllib.parse import parse_qs, unquote, urlsplit

from tests.local_hub.blobs import Blob
from tests.local_hub.faults import Fault, Place, Request
from tests.local_hub.state import State

_RANGE = re.compile(r"bytes=([0-9]+)-([0-9]*)")


class Origin(ThreadingHTTPServer):
    """One origin on a free port of the loopback interface."""

    daemon_threads = True

    def __init__(self, state: State, handler: type[BaseHTTPRequestHandler], port: int = 0) -> None:
        self.state = state
        self._open: set[socket.socket] = set()
        super().__init__(("127.0.0.1", port), handler)
        self._thread = threading.Thread(target=self.serve_forever, args=(0.05,), daemon=True)

    @property
    def url(self) -> str:
        """The origin, without a slash at the end."""
        return f"http://127.0.0.1:{self.server_address[1]}"

    def start(self) -> None:
        """Begin to answer."""
        self._thread.start()

    def stop(self) -> None:
        """Stop answering and close every connection."""
        self.shutdown()
        for connection in list(self._open):
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)
        self.server_close()
        self._thread.join()

    def get_request(self) -> tuple[socket.socket, Any]:
        connection, address = super().get_request()
        self._open.add(connection)
        return connection, address

    def shutdown_request(self, request: Any) -> None:
        self._open.discard(request)
        super().shutdown_request(request)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Say what went wrong, unless a client went away in the middle of a reply."""
        if not isinstance(sys.exception(), OSError):
            super().handle_error(request, client_address)


class _Handler(BaseHTTPRequestHandler):
    """What both origins share: replies, ranges, faults, and a record of it all."""

    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    timeout = 60
    origin: Literal["api", "cdn"]
    server: Origin

    def log_message(self, *args: Any) -> None:
        """Print nothing."""

    @property
    def state(self) -> State:
        return self.server.state

    def parse_request(self) -> bool:
        self._round = self.state.round
        self.state.distance.wait_for_request()
        return super().parse_request()

    def fault(self, at: Place, repo: str, path: str) -> Fault | None:
        """Take the fault that is waiting for this request; one that answers by itself has then answered."""
        found = self.state.take_fault(at, repo, path)
        if found is None:
            return None
        if found.kind == "delay":
            time.sleep(found.seconds)
            return None
        if found.kind == "status":
            self.reply(found.status, b"", found.headers)
        elif found.kind == "body":
            self.reply(200, found.content, {"content-type": "application/json", **found.headers})
        elif found.kind == "redirect":
            self.reply(302, b"", {"location": found.location})
        return found

    def reply(self, status: int, body: bytes, headers: Mapping[str, str]) -> None:
        self._record(status).n_bytes = len(body)
        self._head(status, len(body), headers)
        self.wfile.write(body)

    def reply_json(self, value: object) -> None:
        self.reply(200, json.dumps(value).encode(), {"content-type": "application/json"})

    def refuse(self, status: int, message: str, code: str = "") -> None:
        headers = {"x-error-message": message, "content-type": "application/json"}
        self.reply(status, json.dumps({"error": message}).encode(), headers | ({"x-error-code": code} if code else {}))

    def reply_file(self, blob: Blob, fault: Fault | None, headers: Mapping[str, str]) -> None:
        """Answer with the range asked for, or with the whole file."""
        kind = fault.kind if fault else None
        asked = _RANGE.fullmatch(self.headers.get("range", "")) if kind != "ignore-range" else None
        start, stop = (int(asked[1]), int(asked[2] or blob.n_bytes - 1) + 1) if asked else (0, blob.n_bytes)
        if start >= blob.n_bytes > 0:
            self.reply(416, b"", {"content-range": f"bytes */{blob.n_bytes}"})
            return
        stop = min(stop, blob.n_bytes)
        sent = {"accept-ranges": "bytes", "etag": f'"{blob.oid}"', **headers}
        if asked:
            sent["content-range"] = f"bytes {start}-{stop - 1}/{blob.n_bytes}"
        if fault and kind == "content-range":
            sent["content-range"] = fault.location
        if kind == "encoded":
            sent["content-encoding"] = "gzip"
        request = self._record(206 if asked else 200)
        self._head(request.status, stop - start, sent)
        self._send_body(request, _pieces(blob, start, stop, fault))
        if kind == "cut":
            self.close_connection = True

    def _send_body(self, request: Request, pieces: Iterator[bytes]) -> None:
        try:
            for piece in pieces:
                request.n_bytes += len(piece)
                self.state.distance.wait_for_line(len(piece))
                self.wfile.write(piece)
        except OSError:
            self.close_connection = True

    def _head(self, status: int, length: int, headers: Mapping[str, str]) -> None:
        self.send_response(status)
        for name, value in {"content-length": str(length), **headers}.items():
            self.send_header(name, value)
        self.end_headers()

    def _record(self, status: int) -> Request:
        seen = self.headers.get("authorization")
        request = Request(self.origin, self.path, self.headers.get("range"), seen, status)
        self.state.record(request, self._round)
        return request


def _pieces(blob: Blob, start: int, stop: int, fault: Fault | None) -> Iterator[bytes]:
    if fault and fault.kind == "cut":
        yield from blob.read(start, start + (stop - start) // 2)
    elif fault and fault.kind == "drip":
        for position in range(start, stop):
            yield from blob.read(position, position + 1)
            time.sleep(fault.seconds)
    else:
        yield from blob.read(start, stop)


class CdnHandler(_Handler):
    """Serves what a signed address names, as long as the address is good."""

    origin = "cdn"

    def do_GET(self) -> None:
        query = parse_qs(urlsplit(self.path).query)
        link = self.state.link(query.get("X-Amz-Signature", [""])[0])
        if link is None:
            self.reply(403, b"<Error><Code>AccessDenied</Code></Error>", {"content-type": "application/xml"})
            return
        fault = self.fault("cdn", link.repo, link.path)
        if fault is None or fault.kind not in ("status", "redirect", "body"):
            self.reply_file(link.blob, fault, {})


class ApiHandler(_Handler):
    """`/api/models`, `/api/models/{repo}[/revision/{rev}]` and `/{repo}/resolve/{rev}/{path}`."""

    origin = "api"

    def do_GET(self) -> None:
        parts = urlsplit(self.path)
        segments = [unquote(s) for s in parts.path.split("/")[1:]]
        if self.headers.get("authorization") and self._bearer() not in self.state.tokens:
            self.refuse(401, "Invalid credentials in Authorization header")
        elif segments == ["api", "models"]:
            self.reply_json(self.state.search(parse_qs(parts.query)))
        elif segments[:2] == ["api", "models"] and len(segments) in (4, 6):
            self._model("/".join(segments[2:4]), segments[5] if len(segments) == 6 else "main", parse_qs(parts.query))
        elif len(segments) > 4 and segments[2] == "resolve":
            self._resolve("/".join(segments[:2]), segments[3], "/".join(segments[4:]))
        else:
            self.refuse(404, "Sorry, we can't find the page you are looking for.")

    do_HEAD = do_GET

    def _bearer(self) -> str:
        return (self.headers.get("authorization") or "").removeprefix("Bearer ")

    def _model(self, repo: str, revision: str, query: Mapping[str, list[str]]) -> None:
        if self._missing(repo) or self.fault("api", repo, ""):
            return
        commit = self.state.commit(repo, revision)
        if commit is None:
            self.refuse(404, f"Invalid rev id: {revision}", "RevisionNotFound")
        else:
            self.reply_json(self.state.description(repo, commit, with_sizes=query.get("blobs") in (["true"], ["True"])))

    def _missing(self, repo: str) -> bool:
        """Answer for a repo that the asker may not see, as the Hub does: 401 to the anonymous, 404 to others."""
        if self.state.may_see(repo, self._bearer()):
            return False
        if self._bearer():
            self.refuse(404, "Repository not found", "RepoNotFound")
        else:
            self.refuse(401, "Invalid username or password.")
        return True

    def _resolve(self, repo: str, revision: str, path: str) -> None:
        if self._missing(repo):
            return
        if not self.state.may_read(repo, self._bearer()):
            status = 403 if self._bearer() else 401
            self.refuse(status, f"Access to model {repo} is restricted.", "GatedRepo")
            return
        fault = self.fault("resolve", repo, path)
        commit, blob = self.state.commit(repo, revision), self.state.files(repo).get(path)
        if fault is not None:
            return
        if commit is None:
            self.refuse(404, f"Invalid rev id: {revision}", "RevisionNotFound")
        elif blob is None:
            self.refuse(404, "Entry not found", "EntryNotFound")
        elif not blob.is_lfs:
            self.reply_file(blob, None, {"x-repo-commit": commit})
        else:
            linked = {"x-linked-size": str(blob.n_bytes), "x-linked-etag": f'"{blob.oid}"', "x-repo-commit": commit}
            self.reply(302, b"", {"location": self.state.sign(repo, path, blob), **linked})
