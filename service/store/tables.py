"""The tables. What each column means; the queries are in one file an aggregate."""

from __future__ import annotations

from datetime import UTC, datetime

from sqlalchemy import (
    JSON,
    CheckConstraint,
    Column,
    DateTime,
    Dialect,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    String,
    Table,
    TypeDecorator,
    text,
)
from sqlalchemy.dialects.postgresql import JSONB


class UtcDateTime(TypeDecorator[datetime]):
    """An instant: given and returned with its time zone, kept in UTC on every database."""

    impl = DateTime(timezone=True)
    cache_ok = True

    def process_bind_param(self, value: datetime | None, dialect: Dialect) -> datetime | None:
        """Return `value` in UTC. Raises ValueError for a time without a zone."""
        if value is not None and value.tzinfo is None:
            raise ValueError("a time without its zone is no instant")
        return None if value is None else value.astimezone(UTC)

    def process_result_value(self, value: datetime | None, dialect: Dialect) -> datetime | None:
        """Return `value` in UTC; SQLite forgets the zone."""
        if value is None:
            return None
        return value.replace(tzinfo=UTC) if value.tzinfo is None else value.astimezone(UTC)


_IN_FLIGHT = text("state IN ('queued', 'running')")
_JSON = JSON(none_as_null=True).with_variant(JSONB(none_as_null=True), "postgresql")

metadata = MetaData(
    naming_convention={
        "pk": "%(table_name)s_pk",
        "ix": "%(table_name)s_%(column_0_N_name)s",
        "ck": "%(constraint_name)s",
    }
)

# `request_key` is the hash of what was asked with the branch as given, `key` the same with the commit: the first one
# lets identical requests in flight share a row, the second finds a finished advice. `request` is the canonical
# AdviceRequest, `body` an AdviceBody, `problem` what service.errors.describe returns, `delete_key_hash` a sha256.
advice = Table(
    "advice",
    metadata,
    Column("id", String(22), primary_key=True),
    Column("request_key", String(64), nullable=False),
    Column("key", String(64), index=True),
    Column("state", String(8), nullable=False, index=True),
    Column("repo", String(200), nullable=False),
    Column("revision", String(64)),
    Column("request", _JSON, nullable=False),
    Column("body", _JSON),
    Column("problem", _JSON),
    Column("progress", String(200)),
    Column("attempts", Integer, nullable=False),
    Column("delete_key_hash", String(64), nullable=False),
    Column("created_at", UtcDateTime, nullable=False),
    Column("updated_at", UtcDateTime, nullable=False),
    CheckConstraint("state IN ('queued', 'running', 'ready', 'failed')", name="advice_state"),
    Index("advice_in_flight", "request_key", unique=True, sqlite_where=_IN_FLIGHT, postgresql_where=_IN_FLIGHT),
)

# The commit of a branch, as it was when last asked.
branch = Table(
    "branch",
    metadata,
    Column("repo", String(200), primary_key=True),
    Column("name", String(200), primary_key=True),
    Column("revision", String(64), nullable=False),
    Column("seen_at", UtcDateTime, nullable=False),
)

# What a repo holds at a commit, which never changes: a msgpack RepoListing. Also the list of repos read here.
repo_listing = Table(
    "repo_listing",
    metadata,
    Column("repo", String(200), primary_key=True),
    Column("revision", String(64), primary_key=True),
    Column("listing", LargeBinary, nullable=False),
    Column("seen_at", UtcDateTime, nullable=False),
)

# The parsed header of one file by the sha256 of that file's content: a msgpack Header, kept for ever.
header = Table(
    "header",
    metadata,
    Column("sha256", String(64), primary_key=True),
    Column("header", LargeBinary, nullable=False),
    Column("seen_at", UtcDateTime, nullable=False),
)
