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
from service.queue.connection import connect
from service.queue.embedded import EmbeddedValkey
from service.settings import Settings
from service.web.app import create_app
from service.web.http.client import client_of as address_of
from service.web.http.client import networks
from service.web.http.limits import Bucket, RateLimits, TooManyStreams
from tests.web.http.test_problems import assert_problem
from tests.web.servers import client_of
from tests.web.world import NEW_REPO, READY_REPO, World

NOWHERE = "redis://127.0.0.1:1"
THREE = Bucket("test", 3, 3600, "requests")


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture
async def limits(redis: Redis, valkey: EmbeddedValkey, anyio_backend: str) -> AsyncIterator[RateLimits]:
    async with AsyncRedis.from_url(valkey.url) as connection:
        yield RateLimits(connection, streams=2)


@pytest.mark.anyio
async def test_a_bucket_gives_its_size_and_then_says_how_long_to_wait(limits: RateLimits) -> None:
    for _ in range(3):
        await limits.take(THREE, "a", needs_redis=False)
    with pytest.raises(RateLimited) as refused:
        await limits.take(THREE, "a", needs_redis=False)
    assert 1199 <= refused.value.retry_after <= 1200
    await limits.take(THREE, "b", needs_redis=False)


@pytest.mark.anyio
async def test_a_bucket_fills_again(limits: RateLimits) -> None:
    quick = Bucket("quick", 2, 1, "requests")
    for _ in range(2):
        await limits.take(quick, "a", needs_redis=False)
    with pytest.raises(RateLimited) as refused:
        await limits.take(quick, "a", needs_redis=False)
    await anyio.sleep(refused.value.retry_after)
    await limits.take(quick, "a", needs_redis=False)


@pytest.mark.anyio
async def test_parallel_requests_do_not_slip_through(limits: RateLimits) -> None:
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
async def test_buckets_do_not_stay_in_redis_for_ever(limits: RateLimits, redis: Redis) -> None:
    await limits.take(THREE, "a", needs_redis=False)
    assert 3_000_000 < redis.pttl("limit:test:a") <= 3_601_000


@pytest.mark.anyio
async def test_streams_are_counted_until_closed_or_their_lease_runs_out(limits: RateLimits, redis: Redis) -> None:
    async with await limits.hold("a", 60):
        lease = await limits.hold("a", 30)
        with pytest.raises(TooManyStreams):
            await limits.hold("a", 60)
        await lease.renew()
        (soonest,) = redis.zrange("streams:a", 0, 0)
        assert isinstance(soonest, bytes)
        redis.zincrby("streams:a", -31, soonest)  # as if its time had passed
        async with await limits.hold("a", 60):
            pass


@pytest.mark.anyio
async def test_without_redis_reading_goes_on_and_new_work_is_refused() -> None:
    async with AsyncRedis.from_url(NOWHERE) as connection:
        limits = RateLimits(connection, streams=2)
        await limits.take(THREE, "a", needs_redis=False)
        with pytest.raises(QueueUnavailable):
            await limits.take(THREE, "a", needs_redis=True)
        with pytest.raises(QueueUnavailable):
            await limits.hold("a", 60)


def test_too_many_requests_are_429_with_retry_after(valkey: EmbeddedValkey, world: World) -> None:
    settings = Settings(redis_url=valkey.url, requests_per_minute=5)
    with client_of(create_app(settings, world.context)) as client:
        statuses = [client.get("/v1/hardware/gpus").status_code for _ in range(5)]
        refused = client.get("/v1/hardware/gpus")
        assert statuses == [200] * 5
        assert_problem(refused, 429, "rate-limited")
        assert 1 <= int(refused.headers["retry-after"]) <= 12
        assert client.get("/docs").status_code == client.get("/health").status_code == 200


def test_repos_not_yet_read_have_a_limit_of_their_own(client: httpx.Client) -> None:
    bodies = [{"repo": NEW_REPO, "hardware": f"{n}x RTX 3090"} for n in (1, 2, 3)]
    assert [client.post("/v1/advice", json=body).status_code for body in bodies[:2]] == [202, 202]
    assert_problem(client.post("/v1/advice", json=bodies[2]), 429, "rate-limited")
    assert_problem(client.get(f"/v1/repos/{NEW_REPO}"), 429, "rate-limited")
    assert client.post("/v1/advice", json={**bodies[0], "repo": READY_REPO}).status_code == 200


def test_without_redis_what_is_ready_is_served_and_the_rest_is_503(world: World) -> None:
    without = world.context._replace(redis=connect(NOWHERE))
    with client_of(create_app(Settings(redis_url=NOWHERE), without)) as client:
        assert client.post("/v1/advice", json={"repo": READY_REPO, "hardware": "RTX 3090"}).status_code == 200
        refused = client.post("/v1/advice", json={"repo": NEW_REPO, "hardware": "RTX 3090"})
        assert_problem(refused, 503, "queue-unavailable")
        assert int(refused.headers["retry-after"]) > 0
        assert_problem(client.get("/v1/advice/ready-one/events"), 503, "queue-unavailable")


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
        create_app(Settings(redis_url=NOWHERE, trusted_proxies=("the proxy",)))


@pytest.mark.parametrize("redis_url", [None, "http://127.0.0.1:6379"])
def test_without_a_redis_address_there_is_no_app(redis_url: str | None) -> None:
    with pytest.raises(InvalidSetting, match="REDIS_URL"):
        create_app(Settings(redis_url=redis_url))


def test_threads_of_one_process_share_a_bucket(client: httpx.Client) -> None:
    barrier = threading.Barrier(8)

    def ask(n: int) -> int:
        barrier.wait()
        return client.post("/v1/advice", json={"repo": NEW_REPO, "hardware": f"{n}x RTX 3090"}).status_code

    with ThreadPoolExecutor(8) as pool:
        assert sorted(pool.map(ask, range(1, 9))) == [202] * 2 + [429] * 6
