"""Branches for a while, listings for ever."""

from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta

from sqlalchemy import Engine

from service.store.advice import listings

NOON = datetime(2026, 11, 21, 12, tzinfo=UTC)


def test_a_branch_is_remembered_at_its_last_commit_and_only_for_a_while(engine: Engine) -> None:
    listings.remember_branch(engine, "o/n", "main", "sha1", NOON - timedelta(minutes=20))
    assert listings.branch_revision(engine, "o/n", "main", NOON - timedelta(minutes=10)) is None
    listings.remember_branch(engine, "o/n", "main", "sha2", NOON)
    assert listings.branch_revision(engine, "o/n", "main", NOON - timedelta(minutes=10)) == "sha2"
    assert listings.branch_revision(engine, "o/n", "other", NOON - timedelta(minutes=10)) is None


def test_a_listing_is_kept_by_its_commit(engine: Engine) -> None:
    listings.save_listing(engine, "o/n", "sha1", b"one", NOON)
    listings.save_listing(engine, "o/n", "sha2", b"two", NOON)
    assert listings.read_listing(engine, "o/n", "sha1") == b"one"
    assert listings.read_listing(engine, "o/n", "sha3") is None
    assert listings.is_known(engine, "o/n")
    assert not listings.is_known(engine, "o/m")


def test_repos_read_here_are_found_by_a_part_of_their_name_latest_first(engine: Engine) -> None:
    for minute, repo in enumerate(("a/Qwen3-GGUF", "b/qwen3-gguf", "c/other_gguf", "d/otherXgguf")):
        listings.save_listing(engine, repo, "sha", b"", NOON + timedelta(minutes=minute))
    assert listings.repos_like(engine, "qwen3") == ["b/qwen3-gguf", "a/Qwen3-GGUF"]
    assert listings.repos_like(engine, "other_") == ["c/other_gguf"]


def test_writers_of_one_row_do_not_disturb_each_other(engine: Engine) -> None:
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda _: listings.save_listing(engine, "o/n", "sha", b"same", NOON), range(24)))
    assert listings.read_listing(engine, "o/n", "sha") == b"same"
