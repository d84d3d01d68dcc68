"""One reader a repo at a time, and what is read is remembered; but nothing depends on it."""

import threading
from pathlib import Path

import pytest
from redis import Redis

from service.flows.advice import repos
from service.flows.advice.repos import known_revision, list_repo, reading
from service.flows.context import Context
from service.hub.references import RepoReference
from service.queue.connection import connect
from service.store.advice import listings
from tests.flows.conftest import Clock, WatchedHub
from tests.local_hub import LocalHub
from tests.waiting import PATIENCE, wait_for

QWEN = RepoReference("Qwen", "Qwen3-0.6B-GGUF")


def test_a_listing_is_asked_for_once_a_commit(context: Context, hub: WatchedHub) -> None:
    first = list_repo(context, QWEN)
    assert list_repo(context, QWEN) == first
    assert list_repo(context, RepoReference(QWEN.owner, QWEN.name, first.revision)) == first
    assert hub.listed == [QWEN.repo]


def test_a_listing_kept_in_an_older_shape_is_asked_for_again(context: Context, hub: WatchedHub, clock: Clock) -> None:
    first = list_repo(context, QWEN)
    assert first.revision
    listings.save_listing(context.engine, QWEN.repo, first.revision, b"\x80", clock())
    assert list_repo(context, QWEN) == first
    assert hub.listed == [QWEN.repo] * 2


def test_a_branch_that_moved_is_seen_after_ten_minutes(
    context: Context, hub: WatchedHub, clock: Clock, local_hub: LocalHub
) -> None:
    before = list_repo(context, QWEN).revision
    branches = local_hub.state.branches[QWEN.repo]
    moved = {"main": "f" * 40}
    try:
        local_hub.state.branches[QWEN.repo] = moved
        assert list_repo(context, QWEN).revision == before
        clock.pass_minutes(10.1)
        assert known_revision(context, QWEN) is None
        assert list_repo(context, QWEN).revision == "f" * 40
    finally:
        local_hub.state.branches[QWEN.repo] = branches


def test_a_second_reader_waits_for_the_first(context: Context) -> None:
    order: list[str] = []

    def second() -> None:
        with reading(context, "o/n"):
            order.append("second")

    with reading(context, "o/n"):
        waiting = threading.Thread(target=second)
        waiting.start()
        with reading(context, "o/other"):
            order.append("another repo")
        order.append("first")
    waiting.join(PATIENCE)
    assert order == ["another repo", "first", "second"]


def test_reading_goes_on_without_redis(context: Context, tmp_path: Path) -> None:
    away = context._replace(redis=connect(f"unix://{tmp_path}/none.sock"))
    with reading(away, "o/n"):
        pass


def test_reading_goes_on_when_redis_is_wiped_in_the_middle(context: Context, redis: Redis) -> None:
    with reading(context, "o/n"):
        redis.flushall()
        with reading(context, "o/n"):
            pass


def test_a_claim_is_kept_while_its_reader_lives(context: Context, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(repos, "_CLAIM_SECONDS", 4.0)  # renewed after one
    with reading(context, "o/n"):
        left = context.redis.pttl("reading:o/n")
        wait_for(lambda: context.redis.pttl("reading:o/n") < left - 500, "it does not run down")
        wait_for(lambda: context.redis.pttl("reading:o/n") > left - 500, "it is not renewed")
    assert context.redis.lock("reading:o/n").acquire(blocking=False)


def test_a_reader_that_died_holds_nobody_up_for_long(context: Context) -> None:
    dead = context.redis.lock("reading:o/n", timeout=0.3)
    assert dead.acquire()
    with reading(context, "o/n"):
        assert not dead.owned()
