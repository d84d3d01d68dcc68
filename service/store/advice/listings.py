"""Rows of `branch` and `repo_listing`: the commit of a branch for a while, what a commit holds for ever."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from typing import NamedTuple

from sqlalchemy import Engine, Table, bindparam, delete, func, insert, select
from sqlalchemy.exc import IntegrityError

from service.store.engines import glance
from service.store.queries import column, value
from service.store.tables import branch, repo_listing

_MOST_LISTINGS = 2_000
_REVISION = select(branch.c.revision).where(
    branch.c.repo == bindparam("asked"), branch.c.name == bindparam("branch"), branch.c.seen_at >= bindparam("since")
)


class Listings(NamedTuple):
    """The listings of a database, for who looks a file's name up in them."""

    engine: Engine

    def holding(self, file: str) -> Iterator[tuple[str, bytes]]:
        """Yield the repos read here, and their listings, in whose listing `file` occurs: the latest read first.

        Of each commit that is kept; at most 2,000 are looked at.
        """
        latest = select(repo_listing.c.repo, repo_listing.c.listing).order_by(repo_listing.c.seen_at.desc())
        with self.engine.connect() as connection:
            for repo, listing in connection.execute(latest.limit(_MOST_LISTINGS)):
                if file.encode() in listing:
                    yield repo, listing

    def repos_like(self, name: str) -> list[str]:
        return repos_like(self.engine, name)


def remember_branch(engine: Engine, repo: str, name: str, revision: str, now: datetime) -> None:
    _replace(engine, branch, {"repo": repo, "name": name}, {"revision": revision, "seen_at": now})


def branch_revision(engine: Engine, repo: str, name: str, seen_since: datetime) -> str | None:
    """Return the commit of a branch, if it was seen at or after `seen_since`."""
    with glance(engine) as connection:
        return connection.scalar(_REVISION, {"asked": repo, "branch": name, "since": seen_since})


def save_listing(engine: Engine, repo: str, revision: str, listing: bytes, now: datetime) -> None:
    _replace(engine, repo_listing, {"repo": repo, "revision": revision}, {"listing": listing, "seen_at": now})


def read_listing(engine: Engine, repo: str, revision: str) -> bytes | None:
    found = select(repo_listing.c.listing).where(repo_listing.c.repo == repo, repo_listing.c.revision == revision)
    return value(engine, found)


def read_latest(engine: Engine, repo: str) -> bytes | None:
    found = select(repo_listing.c.listing).where(repo_listing.c.repo == repo)
    return value(engine, found.order_by(repo_listing.c.seen_at.desc()).limit(1))


def is_known(engine: Engine, repo: str) -> bool:
    """Whether this repo was read here before, at any commit."""
    return value(engine, select(repo_listing.c.repo).where(repo_listing.c.repo == repo).limit(1)) is not None


def repos_like(engine: Engine, name: str, limit: int = 5) -> list[str]:
    """Return repos read here whose id contains `name` (any case), the latest first."""
    latest = func.max(repo_listing.c.seen_at)
    found = select(repo_listing.c.repo).where(repo_listing.c.repo.icontains(name, autoescape=True))
    return column(engine, found.group_by(repo_listing.c.repo).order_by(latest.desc()).limit(limit))


def _replace(engine: Engine, table: Table, key: dict[str, object], values: dict[str, object]) -> None:
    try:
        with engine.begin() as connection:
            connection.execute(delete(table).filter_by(**key))
            connection.execute(insert(table).values(**key, **values))
    except IntegrityError:
        return  # another worker has just written the same row
