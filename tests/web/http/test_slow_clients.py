"""Raw connections to the real server: clients that send slowly, never end, do not read, or send too much."""

from __future__ import annotations

import re
import socket
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from itertools import repeat

import httpx
import pytest

from service.web.http import connections
from service.web.http.connections import BoundedConnection
from service.web.http.middleware import HEADERS, MAX_ADDRESS, MAX_HEADERS, MAX_PARAMETERS
from tests.waiting import PATIENCE
from tests.web.http.test_problems import assert_problem
from tests.web.world import READY_REPO, World

HEAD = b"GET /health HTTP/1.1\r\nHost: x\r\n"
SHORT = 0.15  # seconds that stand for those that a client has


@pytest.fixture
def short_times(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HEAD_SECONDS", "BODY_SECONDS", "WRITE_SECONDS"):
        monkeypatch.setattr(connections, name, SHORT)


@contextmanager
def connected(client: httpx.Client) -> Iterator[socket.socket]:
    url = client.base_url
    with socket.create_connection((url.host, url.port or 80), 10) as made:
        yield made


def until_closed(connection: socket.socket) -> bytes:
    """Return all that comes until the server closes."""
    found = b""
    try:
        while piece := connection.recv(65_536):
            found += piece
    except ConnectionResetError:
        pass
    return found


def answer_to(client: httpx.Client, *pieces: bytes) -> bytes:
    with connected(client) as connection:
        for piece in pieces:
            connection.sendall(piece)
        return until_closed(connection)


def is_cut_off(connection: socket.socket, pieces: Iterable[bytes]) -> bool:
    """Send pieces slowly, and return whether the server closes before the last."""
    connection.settimeout(PATIENCE)
    try:
        for piece in pieces:
            connection.sendall(piece)
            time.sleep(0.005)
    except ConnectionError:
        return True
    return False


@pytest.mark.usefixtures("short_times")
@pytest.mark.parametrize("sent", [b"", b"GET", HEAD, HEAD + b"X-A: 1\r\nX-B"])
def test_a_head_that_does_not_come_ends_the_connection(client: httpx.Client, sent: bytes) -> None:
    began = time.monotonic()
    assert answer_to(client, sent).startswith(b"HTTP/1.1 408 ")
    assert time.monotonic() - began > SHORT * 0.9


@pytest.mark.usefixtures("short_times")
def test_a_head_that_drips_ends_the_connection_all_the_same(client: httpx.Client) -> None:
    head = HEAD + b"X-A: " + b"a" * 5000
    with connected(client) as connection:
        assert is_cut_off(connection, (bytes((letter,)) for letter in head))


def test_a_second_head_on_a_connection_has_as_long(client: httpx.Client, monkeypatch: pytest.MonkeyPatch) -> None:
    with connected(client) as connection:
        connection.sendall(HEAD + b"\r\n")
        assert connection.recv(65_536).startswith(b"HTTP/1.1 200 ")
        monkeypatch.setattr(connections, "HEAD_SECONDS", SHORT)
        connection.sendall(b"GET /hea")
        assert b"HTTP/1.1 408 " in until_closed(connection)


@pytest.mark.usefixtures("short_times")
def test_a_body_that_drips_ends_the_connection(client: httpx.Client) -> None:
    head = b"POST /v1/check HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: 1000\r\n\r\n{"
    with connected(client) as connection:
        connection.sendall(head)
        for _ in range(10):
            time.sleep(SHORT / 10)
            try:
                connection.sendall(b" ")
            except OSError:
                break
        assert until_closed(connection).startswith(b"HTTP/1.1 408 ")


@pytest.mark.usefixtures("short_times")
def test_a_body_that_nobody_reads_is_not_taken_for_ever(client: httpx.Client) -> None:
    """A GET of a page answers before its body has come; what goes on sending is cut off."""
    with connected(client) as connection:
        connection.sendall(b"GET /health HTTP/1.1\r\nHost: x\r\nContent-Length: 100000000000\r\n\r\n")
        assert is_cut_off(connection, repeat(bytes(1000), 5000))


@pytest.mark.usefixtures("short_times")
def test_a_client_that_does_not_read_loses_its_connection(client: httpx.Client) -> None:
    with connected(client) as connection:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        assert is_cut_off(connection, repeat(b"GET /openapi.json HTTP/1.1\r\nHost: x\r\n\r\n" * 100, 5000))


def test_more_connections_than_there_may_be_are_told_so(client: httpx.Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(BoundedConnection, "most", 0)
    found = answer_to(client, HEAD + b"\r\n")
    assert found.startswith(b"HTTP/1.1 503 ")
    assert b"\r\nRetry-After: 5\r\n" in found


def test_a_process_asks_for_as_many_files_as_it_may_open() -> None:
    import resource

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (min(500, hard), hard))
        most = connections.most_connections()
        assert 0 < most < resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@pytest.mark.usefixtures("short_times")
@pytest.mark.parametrize(
    "sent",
    [
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" * 3 + b"\r\n\r\n",
        b"SSH-2.0-x\r\n\r\n", b"GET / HTTP/x\r\n\r\n",
        b"GET  / HTTP/1.1\r\nHost: x\r\n\r\n", HEAD + b"Bad Header: 1\r\n\r\n", HEAD + b"Content-Length: -1\r\n\r\n",
        HEAD + b"Content-Length: 1\r\nContent-Length: 2\r\n\r\n", HEAD + b"Transfer-Encoding: gzip\r\n\r\n",
        HEAD + b" folded: 1\r\nX: \x00\r\n\r\n", b"GET /health HTTP/1.1\r\n\r\n", HEAD + b"X: " + b"a" * 70_000,
    ],
)  # fmt: skip
def test_what_is_no_http_is_400_with_the_usual_headers(client: httpx.Client, sent: bytes) -> None:
    found = answer_to(client, sent)
    assert re.match(rb"HTTP/1\.1 (400|408) ", found), found[:200]
    assert all(f"{name}: {value}".encode() in found for name, value in HEADERS.items())


def test_an_address_and_headers_have_a_length(client: httpx.Client) -> None:
    assert_problem(client.get("/health?" + "a" * MAX_ADDRESS), 414, "address-too-long")
    assert_problem(client.get("/" + "a" * MAX_ADDRESS), 414, "address-too-long")
    many = {f"x-{n}": "1" for n in range(MAX_HEADERS)}
    assert_problem(client.get("/health", headers=many), 431, "headers-too-large")
    assert_problem(client.get("/health", headers={"x-a": "1" * 15_000, "x-b": "1" * 2_000}), 431, "headers-too-large")
    assert_problem(client.get("/v1/leaderboard?" + "a=1&" * MAX_PARAMETERS), 422, "invalid-request")
    assert client.get("/health?" + "a" * (MAX_ADDRESS - 10)).status_code == 200


@pytest.mark.parametrize("encoding", ["gzip", "br", "identity, gzip", "x"])
def test_no_compressed_body_is_taken(client: httpx.Client, encoding: str) -> None:
    headers = {"content-encoding": encoding, "content-type": "application/json"}
    for path in ("/v1/check", "/submit", "/v1/advice"):
        reply = client.post(path, content=b"{}", headers=headers)
        assert_problem(reply, 415, "unsupported-media-type")


def test_an_answer_that_is_not_found_in_time_is_503(
    client: httpx.Client, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("service.web.http.middleware.ANSWER_SECONDS", 0.2)
    world.hub.may_end.clear()
    try:
        reply = client.get(f"/v1/repos/{READY_REPO}")
        assert_problem(reply, 503, "service-unavailable")
        assert reply.headers["retry-after"] == "5"
        assert {name: reply.headers.get(name) for name in HEADERS} == HEADERS
    finally:
        world.hub.may_end.set()
    assert client.get("/health").status_code == 200
