"""The one client of what goes out: only what is allowed, bounded, without cookies, proxies and redirects."""

from __future__ import annotations

import gzip
import time
from collections.abc import Callable, Iterator

import httpx
import pytest

from service.outgoing.client import new_client
from service.outgoing.connections import with_checked_addresses
from service.outgoing.rules import Origins, Refused, environments_proxy
from service.settings import Settings
from tests.waiting import PATIENCE

SLACK = "https://hooks.slack.com"
Answer = Callable[[httpx.Request], httpx.Response]


def client_to(answer: Answer, max_bytes: int = 1000, max_seconds: float = 5) -> httpx.Client:
    return new_client(
        Origins([SLACK]), timeout=httpx.Timeout(1), max_bytes=max_bytes, max_seconds=max_seconds,
        transport=httpx.MockTransport(answer),
    )  # fmt: skip


@pytest.mark.parametrize(
    "address",
    [
        "http://hooks.slack.com/x", "https://hooks.slack.com:8443/x", "https://hooks.slack.com.evil.example/x",
        "https://evil.example/https://hooks.slack.com/", "https://me@hooks.slack.com/x", "https://169.254.169.254/x",
        "https://hooks.slack.com@evil.example/x", "file:///etc/passwd", "https://[::1]/",
    ],
)  # fmt: skip
def test_an_origin_that_is_not_named_is_not_asked(address: str) -> None:
    asked: list[httpx.URL] = []

    def answer(request: httpx.Request) -> httpx.Response:
        asked.append(request.url)
        return httpx.Response(200)

    with client_to(answer) as client, pytest.raises((Refused, httpx.UnsupportedProtocol)):
        client.get(address)
    assert asked == []


def test_a_redirect_is_not_followed_and_a_cookie_not_kept() -> None:
    seen: list[httpx.Request] = []

    def answer(request: httpx.Request) -> httpx.Response:
        seen.append(request)
        return httpx.Response(302, headers={"location": "http://127.0.0.1/", "set-cookie": "a=b; Path=/"})

    with client_to(answer) as client:
        assert [client.get(f"{SLACK}/x").status_code for _ in range(2)] == [302, 302]
    assert [(str(request.url), request.headers.get("cookie")) for request in seen] == [(f"{SLACK}/x", None)] * 2


def test_a_reply_is_read_up_to_its_limit() -> None:
    with client_to(lambda _: httpx.Response(200, content=iter([b"x" * 400] * 3))) as client:
        with pytest.raises(Refused, match="larger"):
            client.get(SLACK)
        with client.stream("GET", SLACK) as reply:
            assert next(reply.iter_raw()) == b"x" * 400


def test_a_reply_that_drips_is_given_up() -> None:
    def drip() -> Iterator[bytes]:
        for _ in range(10_000):
            time.sleep(0.01)
            yield b"x"

    began = time.monotonic()
    client = client_to(lambda _: httpx.Response(200, content=drip()), max_seconds=0.05)
    with client, pytest.raises(httpx.ReadTimeout):
        client.get(SLACK)
    assert time.monotonic() - began < PATIENCE


def test_what_is_compressed_is_refused_before_it_unfolds() -> None:
    bomb = gzip.compress(bytes(10_000_000))
    with (
        client_to(
            lambda _: httpx.Response(200, headers={"content-encoding": "gzip"}, stream=httpx.ByteStream(bomb))
        ) as c,
        pytest.raises(Refused, match="compressed"),
    ):
        c.get(SLACK)


def test_proxies_of_the_environment_are_not_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "https_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:1")
    monkeypatch.setenv("NO_PROXY", "internal.example")
    with new_client(Origins([SLACK]), timeout=httpx.Timeout(1), max_bytes=1, max_seconds=1) as client:
        assert not client._mounts
    assert environments_proxy("https://huggingface.co") == "http://127.0.0.1:1"
    assert environments_proxy("https://internal.example/x") is None


def test_our_own_defaults_must_be_public_and_what_an_operator_names_need_not() -> None:
    usual, named = Settings(), Settings(slack_api="https://slack.lan/api")
    rule = Origins([named.slack_api, named.slack_hooks], usual=[usual.slack_api, usual.slack_hooks])
    assert [rule.may_be_private(host) for host in ("slack.lan", "hooks.slack.com", "evil.lan")] == [True, False, False]


def test_a_transport_that_keeps_its_connections_elsewhere_is_no_silent_hole() -> None:
    """What chooses the connections is not a public part of httpx: another version must fail, not go unchecked."""

    class Other:
        _pool = None

    import httpcore

    with pytest.raises(TypeError):
        with_checked_addresses(Other(), Origins([SLACK]), 1, httpcore)
