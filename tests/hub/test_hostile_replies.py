"""Replies that lie, break, stall or lead elsewhere: each costs little and ends in an error with a name."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable

import httpx
import pytest

from service.engine.errors import TruncatedHeader
from service.engine.gguf.header import Header
from service.hub.client import Hub
from service.hub.errors import HubRateLimited, HubReplyRefused, HubUnauthorised, HubUnavailable, RepoNotFound
from service.hub.listing import ListingLimits, RepoFile, RepoListing, Variant
from service.hub.references import parse_repo_reference
from tests.hub.conftest import TINY, TINY_FILE
from tests.local_hub import TOKEN, Fault, LocalHub
from tests.models import gguf_bytes

Connect = Callable[..., Hub]
QWEN = "Qwen/Qwen3-0.6B-GGUF"  # its headers take several ranges


def listed(hub: Hub, repo: str = TINY) -> RepoListing:
    return hub.list_repo(parse_repo_reference(repo))


def read(hub: Hub, repo: str = TINY) -> Header:
    listing = listed(hub, repo)
    return hub.read_header(listing, listing.variants[0])


@pytest.mark.parametrize("at", ["resolve", "cdn"])
@pytest.mark.parametrize("status", [429, 500, 502, 503])
def test_a_passing_failure_is_got_over(
    local_hub: LocalHub, connect: Connect, slept: list[float], at: str, status: int
) -> None:
    local_hub.fail(Fault("status", at, TINY, times=2, status=status, headers={"retry-after": "1"}))  # type: ignore[arg-type]
    assert read(connect()) == local_hub.header(TINY, "Q8_0")
    assert slept == [1, 1]


@pytest.mark.parametrize("at", ["resolve", "cdn"])
def test_a_rate_limit_on_files_is_handed_on_with_its_time(local_hub: LocalHub, connect: Connect, at: str) -> None:
    local_hub.fail(Fault("status", at, TINY, status=429, headers={"retry-after": "240"}))  # type: ignore[arg-type]
    with pytest.raises(HubRateLimited) as caught:
        read(connect())
    assert caught.value.retry_after == 240


@pytest.mark.parametrize(
    ("status", "headers", "error"),
    [
        (500, {}, HubUnavailable),
        (404, {"x-error-code": "EntryNotFound"}, RepoNotFound),
        (401, {"x-error-message": "Invalid credentials in Authorization header"}, HubUnauthorised),
        (403, {}, HubUnauthorised),
        (418, {}, HubReplyRefused),
        (304, {}, HubReplyRefused),
        (302, {}, HubReplyRefused),
        (416, {}, TruncatedHeader),
    ],
)
def test_every_other_status_is_an_error_with_a_name(
    local_hub: LocalHub, connect: Connect, status: int, headers: dict[str, str], error: type[Exception]
) -> None:
    local_hub.fail(Fault("status", "resolve", TINY, status=status, headers=headers))
    with pytest.raises(error):
        read(connect())


def test_a_body_that_breaks_off_is_taken_up_where_it_ended(
    local_hub: LocalHub, connect: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    n = local_hub.header(TINY, "Q8_0").n_bytes
    monkeypatch.setattr("service.hub.headers.FIRST_RANGE", n)
    local_hub.fail(Fault("cut", "cdn", TINY, times=2))
    assert read(connect()) == local_hub.header(TINY, "Q8_0")
    starts = [int((r.range or "")[6:].partition("-")[0]) for r in local_hub.requests if r.origin == "cdn"]
    assert starts == [0, n // 2, n // 2 + (n - n // 2) // 2]
    local_hub.fail(Fault("cut", "cdn", TINY))
    with pytest.raises(HubUnavailable):
        read(connect())


def test_a_server_that_ignores_ranges_costs_no_more_than_was_asked_for(local_hub: LocalHub, connect: Connect) -> None:
    local_hub.fail(Fault("ignore-range", "cdn", QWEN))
    hub = connect()
    assert read(hub, QWEN) == local_hub.header(QWEN, "Q4_K_M")
    assert hub.cost.n_bytes <= local_hub.header(QWEN, "Q4_K_M").n_bytes + 2 * 65_536


def test_a_server_that_ignores_ranges_is_not_asked_for_jumps(local_hub: LocalHub, connect: Connect) -> None:
    """Each range behind the first would cost all that lies before it."""
    local_hub.fail(Fault("ignore-range", "cdn", QWEN))
    hub = connect()
    headers = list(hub.read_headers(listing := listed(hub, QWEN), listing.variants))
    assert [h.by_jump for h in headers if isinstance(h, Header)] == [False] * 3
    total = sum(h.n_bytes for h in headers if isinstance(h, Header))
    assert hub.cost.n_bytes <= total + 6 * 2 * 65_536


@pytest.mark.parametrize(
    "stated",
    [
        "bytes 0-1048575/17", "bytes 5-1048575/{n}", "bytes 0-67108863/{n}", "bytes 0-1048575/*", "bytes */{n}", "",
        "pages 1-2/3", "bytes 1048575-0/{n}", "bytes 0-1048575/" + "9" * 40, "bytes 0-1048575/{n}0",
    ],
)  # fmt: skip
def test_a_range_other_than_the_one_asked_for_is_refused(local_hub: LocalHub, connect: Connect, stated: str) -> None:
    hub = connect()
    n = listed(hub).variants[0].n_bytes
    local_hub.fail(Fault("content-range", "cdn", TINY, location=stated.format(n=n)))
    with pytest.raises(HubReplyRefused):
        read(hub)


def test_a_compressed_reply_is_refused_before_it_unfolds(local_hub: LocalHub, connect: Connect) -> None:
    local_hub.fail(Fault("encoded", "cdn", TINY))
    with pytest.raises(HubReplyRefused, match="compressed"):
        read(connect())


def test_an_expired_address_is_renewed(local_hub: LocalHub, connect: Connect, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("service.hub.headers.FIRST_RANGE", 1 << 20)
    hub = connect()
    listing = listed(hub, QWEN)
    local_hub.fail(Fault("status", "cdn", QWEN, times=1, status=403))
    with pytest.raises(HubUnauthorised):  # a fresh address that answers 403 is no expired one
        hub.read_header(listing, listing.variants[0])
    local_hub.reset()
    sent, wait = hub._ranges._send, threading.Event()

    def expire_after_first(url, headers, deadline):  # type: ignore[no-untyped-def]
        if not headers["range"].startswith("bytes=0-") and not wait.is_set():
            wait.set()
            local_hub.expire_links()
        return sent(url, headers, deadline)

    hub._ranges._send = expire_after_first  # type: ignore[method-assign]
    assert hub.read_header(listing, listing.variants[0]) == local_hub.header(QWEN, "Q4_K_M")
    assert [r.status for r in local_hub.requests][:5] == [302, 206, 403, 302, 206]


VARIANT = Variant("Q8_0", (RepoFile("m-Q8_0.gguf", 1 << 30),))


class Elsewhere:
    """A server on the loopback interface that should never be spoken to, and counts who does."""

    def __init__(self) -> None:
        self.socket = socket.create_server(("127.0.0.1", 0))
        self.port = self.socket.getsockname()[1]

    def was_asked(self) -> bool:
        self.socket.settimeout(0.05)
        try:
            self.socket.accept()[0].close()
        except TimeoutError:
            return False
        return True


@pytest.mark.parametrize(
    "location",
    [
        "http://169.254.169.254/latest/meta-data/", "http://10.0.0.1/x", "https://192.168.1.1/x", "https://evil.example/x",
        "http://huggingface.co/x", "https://huggingface.co.evil.example/x", "https://user@cdn-lfs.hf.co/x", "file:///etc/passwd",
        "gopher://127.0.0.1/x", "//evil.example/x", "https://[fe80::1]/x", "https://xhf.co/x", "http://[::ffff:169.254.169.254]/",
        "https://2130706433.hf.co.evil.example/", "http://0.0.0.0/x", "https://", "http://[bad/x", "http://%00/",
    ],
)  # fmt: skip
def test_a_redirect_elsewhere_is_not_followed(local_hub: LocalHub, connect: Connect, location: str) -> None:
    local_hub.fail(Fault("redirect", "resolve", TINY, location=location))
    hub = connect(TOKEN)
    with pytest.raises(HubReplyRefused):
        read(hub)
    assert hub.cost.requests == 1


def test_a_second_redirect_is_held_to_the_same_rules(local_hub: LocalHub, connect: Connect) -> None:
    local_hub.fail(Fault("redirect", "cdn", TINY, location="https://evil.example/x"))
    with pytest.raises(HubReplyRefused, match=r"'evil\.example'"):
        read(connect())


def test_a_loop_of_redirects_ends(local_hub: LocalHub, connect: Connect) -> None:
    location = f"/{TINY}/resolve/main/{TINY_FILE}"
    local_hub.fail(Fault("redirect", "resolve", TINY, location=location))
    hub = connect()
    with pytest.raises(HubReplyRefused, match="redirects"):
        read(hub)
    assert hub.cost.requests == 5


def test_a_hub_that_is_not_on_loopback_cannot_lead_to_loopback(slept: list[float]) -> None:
    elsewhere = Elsewhere()
    seen: list[httpx.Request] = []

    def answer(request: httpx.Request) -> httpx.Response:
        seen.append(request)
        return httpx.Response(302, headers={"location": f"http://127.0.0.1:{elsewhere.port}/"})

    listing = RepoListing("a/b", "0" * 40, ())
    hub = Hub("https://huggingface.co", "hf_secret", transport=httpx.MockTransport(answer), sleep=slept.append)
    with pytest.raises(HubReplyRefused, match=r"'127.0.0.1'"):
        hub.read_header(listing, VARIANT)
    assert len(seen) == 1
    assert not elsewhere.was_asked()
    hub.close()
    elsewhere.socket.close()


@pytest.mark.parametrize(
    ("location", "hosts"),
    [
        ("https://cas-bridge.xethub.hf.co/xet/1?X-Amz-Signature=s", ()),
        ("https://cdn-lfs-us-1.hf.co/x", ()),
        ("https://cdn-lfs.huggingface.co/x", ()),
        ("https://mirror.example/x", ("mirror.example",)),
        ("https://eu.mirror.example/x", (".mirror.example",)),
    ],
)
def test_the_hubs_own_hosts_and_the_operators_serve_files_without_seeing_the_token(
    slept: list[float], location: str, hosts: tuple[str, ...]
) -> None:
    head, seen = gguf_bytes("Qwen3-0.6B", "q8_0", small=True), []

    def answer(request: httpx.Request) -> httpx.Response:
        seen.append((request.url.host, request.headers.get("authorization")))
        if request.url.host == "huggingface.co":
            return httpx.Response(302, headers={"location": location})
        stated = f"bytes 0-1048575/{1 << 30}"
        body = httpx.ByteStream(head + bytes((1 << 20) - len(head)))
        return httpx.Response(206, headers={"content-range": stated}, stream=body)

    hub = Hub(
        "https://huggingface.co", "hf_secret", hosts=hosts, transport=httpx.MockTransport(answer), sleep=slept.append
    )
    assert hub.read_header(RepoListing("a/b", "0" * 40, ()), VARIANT).tensors
    assert seen == [("huggingface.co", "Bearer hf_secret"), (httpx.URL(location).host, None)]
    hub.close()


def test_a_hub_that_stalls_is_given_up(local_hub: LocalHub, connect: Connect) -> None:
    local_hub.fail(Fault("delay", "cdn", TINY, seconds=0.5))
    hub = connect(limits=ListingLimits(request_seconds=0.1, attempts=1))
    listing = listed(hub)
    with pytest.raises(HubUnavailable, match="ReadTimeout"):
        hub.read_header(listing, listing.variants[0])


def test_a_hub_that_drips_is_given_up_when_the_time_for_a_file_is_over(local_hub: LocalHub, connect: Connect) -> None:
    hub = connect(limits=ListingLimits(file_seconds=0.2))
    listing = listed(hub)
    local_hub.fail(Fault("drip", "cdn", TINY, seconds=0.02))
    with pytest.raises(HubUnavailable, match="too slow"):
        hub.read_header(listing, listing.variants[0])


def test_a_search_that_answers_nonsense_or_too_much_is_refused(local_hub: LocalHub, connect: Connect) -> None:
    hub = connect()
    for body in (b"<html>", b'{"id": 1}', b"[" + b'{"id":"a/b"},' * 100_000):
        hub._ranges.get_json = lambda *_, body=body: body[: 1 << 20]  # type: ignore[method-assign]
        with pytest.raises(HubReplyRefused):
            hub.search_gguf("a/b")


def test_a_search_returns_only_names_that_the_hub_allows(connect: Connect) -> None:
    hub = connect()
    hub._ranges.get_json = lambda *_: b'[{"id":"../x"},{"id":"a/b"},{"id":"x\\u001b[2J/y"}]'  # type: ignore[method-assign]
    assert hub.search_gguf("a/b") == ("a/b",)
