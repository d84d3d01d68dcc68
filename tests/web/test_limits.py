"""How much one client may ask, counted in Redis; and what happens without Redis."""

from __future__ import annotations

import threading
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace
from typing import Any

import anyio
import httpx
import pytest
from litestar.datastructures import Headers
from redis import Redis
from redis.asyncio import Redis as AsyncRedis

from service.errors import InvalidSetting, QueueUnavailable, RateLimited
from service.queue.embedded import EmbeddedValkey
from service.settings import Settings
from service.web.app import create_app
from service.web.client import client_of as address_of
from service.web.client import networks
from service.web.limits import Bucket, Limits, TooManyStreams
from tests.web.memory_flows import NEW_REPO, READY_REPO, MemoryFlows
from tests.web.servers import client_of
from tests.web.test_problems import assert_problem

NOWHERE = "redis://127.0.0.1:1"
THREE = Bucket("test", 3, 3600, "requests")


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture
async def limits(redis: Redis, valkey: EmbeddedValkey, anyio_backend: str) -> AsyncIterator[Limits]:
    async with AsyncRedis.from_url(valkey.url) as connection:
        yield Limits(connection, streams=2)


@pytest.mark.anyio
async def test_a_bucket_gives_its_size_and_then_says_how_long_to_wait(limits: Limits) -> None:
    for _ in range(3):
        await limits.take(THREE, "a", needs_redis=False)
    with pytest.raises(RateLimited) as refused:
        await limits.take(THREE, "a", needs_redis=False)
    assert 1199 <= refused.value.retry_after <= 1200
    await limits.take(THREE, "b", needs_redis=False)


@pytest.mark.anyio
async def test_a_bucket_fills_again(limits: Limits) -> None:
    quick = Bucket("quick", 2, 1, "requests")
    for _ in range(2):
        await limits.take(quick, "a", needs_redis=False)
    with pytest.raises(RateLimited) as refused:
        await limits.take(quick, "a", needs_redis=False)
    await anyio.sleep(refused.value.retry_after)
    await limits.take(quick, "a", needs_redis=False)


@pytest.mark.anyio
async def test_parallel_requests_do_not_slip_through(limits: Limits) -> None:
    taken = []

    async def take() -> None:
        try:
            await limits.take(Bucket("parallel", 10, 3600, "requests"), "a", needs_redis=False)
            taken.append(1)
        except RateLimited:
            pass

    async with anyio.create_task_group() as group:
        for _ in range(50):
            group.start_soon(take)
    assert len(taken) == 10


@pytest.mark.anyio
async def test_buckets_do_not_stay_in_redis_for_ever(limits: Limits, redis: Redis) -> None:
    await limits.take(THREE, "a", needs_redis=False)
    assert 3_000_000 < redis.pttl("limit:test:a") <= 3_601_000


@pytest.mark.anyio
async def test_streams_are_counted_until_closed_or_their_lease_runs_out(limits: Limits, redis: Redis) -> None:
    async with await limits.hold("a", 60):
        lease = await limits.hold("a", 30)
        with pytest.raises(TooManyStreams):
            await limits.hold("a", 60)
        await lease.renew()
        (soonest,) = redis.zrange("streams:a", 0, 0)
        redis.zincrby("streams:a", -31, soonest)  # as if its time had passed
        async with await limits.hold("a", 60):
            pass


@pytest.mark.anyio
async def test_without_redis_reading_goes_on_and_new_work_is_refused() -> None:
    async with AsyncRedis.from_url(NOWHERE) as connection:
        limits = Limits(connection, streams=2)
        await limits.take(THREE, "a", needs_redis=False)
        with pytest.raises(QueueUnavailable):
            await limits.take(THREE, "a", needs_redis=True)
        with pytest.raises(QueueUnavailable):
            await limits.hold("a", 60)


def test_too_many_requests_are_429_with_retry_after(valkey: EmbeddedValkey, flows: MemoryFlows) -> None:
    settings = Settings(redis_url=valkey.url, requests_per_minute=5)
    with client_of(create_app(settings, flows)) as client:  # type: ignore[arg-type]
        statuses = [client.get("/v1/hardware/gpus").status_code for _ in range(5)]
        refused = client.get("/v1/hardware/gpus")
        assert statuses == [200] * 5
        assert_problem(refused, 429, "rate-limited")
        assert 1 <= int(refused.headers["retry-after"]) <= 12
        assert client.get("/docs").status_code == client.get("/health").status_code == 200


def test_repos_not_yet_read_have_a_limit_of_their_own(client: httpx.Client) -> None:
    body = {"repo": NEW_REPO, "hardware": "RTX 3090"}
    assert [client.post("/v1/advice", json=body).status_code for _ in range(2)] == [202, 202]
    assert_problem(client.post("/v1/advice", json=body), 429, "rate-limited")
    assert_problem(client.get(f"/v1/repos/{NEW_REPO}"), 429, "rate-limited")
    assert client.post("/v1/advice", json={**body, "repo": READY_REPO}).status_code == 200


def test_without_redis_what_is_ready_is_served_and_the_rest_is_503(flows: MemoryFlows) -> None:
    with client_of(create_app(Settings(redis_url=NOWHERE), flows)) as client:  # type: ignore[arg-type]
        assert client.post("/v1/advice", json={"repo": READY_REPO, "hardware": "x"}).status_code == 200
        refused = client.post("/v1/advice", json={"repo": NEW_REPO, "hardware": "x"})
        assert_problem(refused, 503, "queue-unavailable")
        assert int(refused.headers["retry-after"]) > 0
        assert_problem(client.get("/v1/advice/ready-one/events"), 503, "queue-unavailable")


def test_only_so_many_repos_are_read_at_once(client: httpx.Client, flows: MemoryFlows) -> None:
    flows.may_end.clear()
    with ThreadPoolExecutor(5) as pool:
        pending = [pool.submit(client.get, "/v1/repos/known/ready") for _ in range(5)]
        refused = next(f.result() for f in _as_done(pending) if f.result().status_code != 200)
        flows.may_end.set()
        assert sorted(f.result().status_code for f in pending) == [200, 200, 200, 200, 503]
    assert_problem(refused, 503, "service-unavailable")


def _as_done(pending: Any) -> Any:
    from concurrent.futures import as_completed

    return as_completed(pending)


def request_from(address: str | None, *forwarded: str | None) -> Any:
    headers = Headers.from_scope({"headers": [(b"x-forwarded-for", f.encode()) for f in forwarded if f]})  # type: ignore[arg-type]
    return SimpleNamespace(client=SimpleNamespace(host=address) if address else None, headers=headers)


@pytest.mark.parametrize(
    ("address", "forwarded", "expected"),
    [
        ("203.0.113.9", None, "203.0.113.9"),
        ("203.0.113.9", "198.51.100.1", "203.0.113.9"),
        ("10.0.0.1", "198.51.100.1", "198.51.100.1"),
        ("10.0.0.1", "1.1.1.1, 198.51.100.1", "198.51.100.1"),
        ("10.0.0.1", "198.51.100.1, 10.0.0.7", "198.51.100.1"),
        ("10.0.0.1", "nonsense", "10.0.0.1"),
        ("10.0.0.1", "10.0.0.2, 10.0.0.3", "10.0.0.2"),
        ("::ffff:203.0.113.9", None, "203.0.113.9"),
        ("2001:db8:1:2:3:4:5:6", None, "2001:db8:1:2::/64"),
        ("2001:db8:1:2:ffff::1", None, "2001:db8:1:2::/64"),
        ("10.0.0.1", "198.51.100.1:4711", "198.51.100.1"),
        ("10.0.0.1", "[2001:db8:1:2::5]:4711", "2001:db8:1:2::/64"),
        ("10.0.0.1", "[2001:db8:1:2::5]", "2001:db8:1:2::/64"),
        ("10.0.0.1", "198.51.100.1:4711:1", "10.0.0.1"),
        ("10.0.0.1", "1.1.1.1, 198.51.100.1, unknown", "10.0.0.1"),
        ("10.0.0.1", "127.0.0.1, 10.0.0.9, 203.0.113.9, 10.0.0.2", "203.0.113.9"),
        ("10.0.0.1", "198.51.100.1," + "10.0.0.2," * 40 + "10.0.0.3", "10.0.0.2"),
        ("10.0.0.1", "1" * 10_000, "10.0.0.1"),
        ("::ffff:10.0.0.1", "::ffff:198.51.100.1", "198.51.100.1"),
        (None, "198.51.100.1", "unknown"),
        (None, None, "unknown"),
    ],
)
def test_a_client_is_seen_through_trusted_proxies_only(
    address: str | None, forwarded: str | None, expected: str
) -> None:
    assert address_of(request_from(address, forwarded), networks(("10.0.0.0/8",))) == expected


def test_a_line_that_the_client_sent_itself_does_not_hide_the_one_that_its_proxy_added() -> None:
    assert address_of(request_from("10.0.0.1", "1.1.1.1", "198.51.100.1"), networks(("10.0.0.0/8",))) == "198.51.100.1"


def test_a_proxy_network_that_is_none_is_refused_at_start() -> None:
    with pytest.raises(InvalidSetting, match="ADVISOR_TRUSTED_PROXIES"):
        create_app(Settings(redis_url=NOWHERE, trusted_proxies=("the proxy",)), object())  # type: ignore[arg-type]


@pytest.mark.parametrize("redis_url", [None, "http://127.0.0.1:6379"])
def test_without_a_redis_address_there_is_no_app(redis_url: str | None) -> None:
    with pytest.raises(InvalidSetting, match="REDIS_URL"):
        create_app(Settings(redis_url=redis_url), object())  # type: ignore[arg-type]


def test_threads_of_one_process_share_a_bucket(client: httpx.Client) -> None:
    barrier = threading.Barrier(8)

    def ask(_: int) -> int:
        barrier.wait()
        return client.post("/v1/advice", json={"repo": NEW_REPO, "hardware": "x"}).status_code

    with ThreadPoolExecutor(8) as pool:
        assert sorted(pool.map(ask, range(8))) == [202] * 2 + [429] * 6
