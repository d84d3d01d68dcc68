"""A network of recorded replies: real host names over TLS, served on one loopback port with an authority of our own.

The code under test resolves names, checks addresses and certificates, and speaks HTTP as it always does; only the last
step, the TCP connection to a public address, leads here.
"""

from __future__ import annotations

import socket
import ssl
import subprocess
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, NamedTuple

import httpcore
import httpcore2
import pytest

PUBLIC_ADDRESS = "18.164.174.17"  # one that the guard of addresses lets pass; nothing is ever sent there


class Recorded(NamedTuple):
    """A reply: status, headers, body."""

    status: int
    headers: Mapping[str, str] = {}
    body: bytes = b""


class Asked(NamedTuple):
    """A request as the network saw it."""

    host: str
    path: str
    authorization: str | None
    range: str | None


Answer = Callable[[Asked], Recorded]


class Network:
    """What was asked, and who answers."""

    def __init__(self, answer: Answer) -> None:
        self.answer, self.asked = answer, list[Asked]()


def made_certificates(folder: Path, hosts: list[str]) -> tuple[Path, Path]:
    """Return an authority's certificate, and a file with a certificate for `hosts` and its key."""
    names = ",".join(f"DNS:{host}" for host in hosts)
    authority, key, leaf = folder / "authority.pem", folder / "authority.key", folder / "leaf.pem"
    new = [
        "openssl",
        "req",
        "-x509",
        "-newkey",
        "ec",
        "-pkeyopt",
        "ec_paramgen_curve:prime256v1",
        "-nodes",
        "-days",
        "2",
    ]
    _run(*new, "-subj", "/CN=tests", "-keyout", str(key), "-out", str(authority))
    leaf_key = folder / "leaf.key"
    signed = ["-CA", str(authority), "-CAkey", str(key), "-addext", f"subjectAltName={names}"]
    signed += ["-addext", "basicConstraints=CA:FALSE"]
    _run(*new, "-subj", "/CN=leaf", *signed, "-keyout", str(leaf_key), "-out", str(leaf))
    leaf.write_bytes(leaf.read_bytes() + leaf_key.read_bytes())
    return authority, leaf


def _run(*command: str) -> None:
    subprocess.run(command, check=True, capture_output=True)


@contextmanager
def network_of(
    answer: Answer, certificates: tuple[Path, Path], hosts: list[str], monkeypatch: pytest.MonkeyPatch
) -> Iterator[Network]:
    """Let `answer` be the internet for the length of a block, as far as `hosts` go."""
    network, (authority, leaf) = Network(answer), certificates
    server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(network))
    served = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    served.load_cert_chain(leaf)
    server.socket = served.wrap_socket(server.socket, server_side=True)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    _lead_here(monkeypatch, server.server_address[1], set(hosts), ssl.create_default_context(cafile=str(authority)))
    try:
        yield network
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def _lead_here(monkeypatch: pytest.MonkeyPatch, port: int, hosts: set[str], trust: ssl.SSLContext) -> None:
    resolve = socket.getaddrinfo

    def resolved(host: Any, *more: Any, **named: Any) -> Any:
        return resolve(PUBLIC_ADDRESS if host in hosts else host, *more, **named)

    monkeypatch.setattr(socket, "getaddrinfo", resolved)
    monkeypatch.setattr("service.outgoing.client.authorities", lambda: trust)
    monkeypatch.setattr("service.outgoing.library.authorities", lambda: trust)
    for core in (httpcore, httpcore2):
        connect: Any = core.SyncBackend.connect_tcp

        def connected(self: Any, host: str, _: int, *more: Any, connect: Any = connect, **named: Any) -> Any:
            assert host == PUBLIC_ADDRESS
            return connect(self, "127.0.0.1", port, *more, **named)

        monkeypatch.setattr(core.SyncBackend, "connect_tcp", connected)


def _handler(network: Network) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            asked = Asked(self.headers["host"], self.path, self.headers.get("authorization"), self.headers.get("range"))
            network.asked.append(asked)
            reply = network.answer(asked)
            self.send_response(reply.status)
            for name, value in {**reply.headers, "content-length": str(len(reply.body))}.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(reply.body)

        def log_message(self, format: str, *args: Any) -> None:
            """Say nothing."""

    return Handler
