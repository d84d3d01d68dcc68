"""Text is compressed for who takes it so, with an ETag that still tells whether it changed; secrets never are."""

from __future__ import annotations

import gzip
import socket
from urllib.parse import urlsplit

import httpx
import pytest

from service.web.http.middleware import _takes_gzip
from tests.web.world import NEW_REPO, READY_REPO, World

PLAIN = {"Accept-Encoding": "identity"}
GZIP = {"Accept-Encoding": "gzip, br"}
LONG = {"repo": "known/" + "a-long-name" * 50}


def raw(client: httpx.Client, path: str, headers: str) -> tuple[str, bytes]:
    """Return head and body as they came, nothing taken apart."""
    where = urlsplit(str(client.base_url))
    with socket.create_connection((where.hostname or "", where.port or 0), timeout=10) as connection:
        connection.sendall(f"GET {path} HTTP/1.1\r\nHost: a\r\nConnection: close\r\n{headers}\r\n\r\n".encode())
        came = b"".join(iter(lambda: connection.recv(65536), b""))
    head, _, body = came.partition(b"\r\n\r\n")
    return head.decode("latin-1").lower(), body


@pytest.mark.parametrize("path", ["/docs", "/openapi.json", "/v1/advice/long", "/leaderboard"])
def test_text_comes_compressed_and_says_the_same(client: httpx.Client, world: World, path: str) -> None:
    world.put("long", "ready", **LONG)
    plain, packed = client.get(path, headers=PLAIN), client.get(path, headers=GZIP)
    assert "content-encoding" not in plain.headers
    assert packed.headers["content-encoding"] == "gzip"
    assert packed.content == plain.content
    assert int(packed.headers["content-length"]) < len(plain.content) / 2
    assert plain.headers["vary"] == packed.headers["vary"] == "Accept, Accept-Encoding"
    assert client.head(path, headers=GZIP).headers["content-length"] == packed.headers["content-length"]


def test_the_bytes_are_those_of_gzip_and_as_many_as_stated(client: httpx.Client) -> None:
    head, body = raw(client, "/openapi.json", "Accept-Encoding: gzip")
    assert f"content-length: {len(body)}\r\n" in head + "\r\n"
    assert gzip.decompress(body) == client.get("/openapi.json", headers=PLAIN).content


def test_an_etag_of_either_form_is_known_again(client: httpx.Client, world: World) -> None:
    world.put("long", "ready", **LONG)
    strong = client.get("/v1/advice/long", headers=PLAIN).headers["etag"]
    weak = client.get("/v1/advice/long", headers=GZIP).headers["etag"]
    assert weak == "W/" + strong
    for etag in (strong, weak):
        for form in (PLAIN, GZIP):
            same = client.get("/v1/advice/long", headers={"If-None-Match": etag, **form})
            assert (same.status_code, same.headers["etag"], same.content) == (304, etag, b"")
            assert same.headers["vary"] == "Accept, Accept-Encoding"
    world.put("long", "ready", **LONG, revision="another")
    assert client.get("/v1/advice/long", headers={"If-None-Match": weak, **GZIP}).status_code == 200


def test_what_holds_a_key_is_not_compressed(client: httpx.Client) -> None:
    body = {
        "repo": NEW_REPO,
        "hardware": "RTX 3090",
        "constraints": {"current_command": "llama-server " + "-fa " * 500},
    }
    made = client.post("/v1/advice", json=body, headers=GZIP)
    assert made.json()["delete_key"]
    assert "content-encoding" not in made.headers


def test_what_is_short_and_what_never_ends_is_sent_as_it_is(client: httpx.Client, world: World) -> None:
    world.put("short", "ready", repo=READY_REPO)
    assert "content-encoding" not in client.get("/v1/leaderboard", headers=GZIP).headers
    assert "content-encoding" not in client.get("/v1/advice/short/events", headers=GZIP).headers


def test_an_answer_to_a_form_is_not_kept(client: httpx.Client) -> None:
    answer = client.post("/check", data={"command": "x" * 2_000}, headers={**GZIP, "Origin": str(client.base_url)})
    assert "etag" not in answer.headers
    assert "content-encoding" not in answer.headers


@pytest.mark.parametrize(
    ("accepted", "takes"),
    [
        (b"gzip", True),
        (b"br;q=1.0, GZIP;q=0.5", True),
        (b"gzip;q=0", False),
        (b"gzip; q=0.0, br", False),
        (b"br, deflate", False),
        (b"x-gzip-not", False),
        (b"*", False),
        (b"", False),
        (b"\xff\xfe,,;;", False),
    ],
)
def test_gzip_is_taken_by_who_says_so(accepted: bytes, takes: bool) -> None:
    assert _takes_gzip(accepted) is takes
