"""The first tables: advice, branch, repo_listing, header."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects.postgresql import JSONB

revision = "0001"
down_revision = None

_JSON = sa.JSON().with_variant(JSONB(), "postgresql")
_TIME = sa.DateTime(timezone=True)


def upgrade() -> None:
    """Create the tables."""
    op.create_table(
        "advice",
        sa.Column("id", sa.String(22), primary_key=True),
        sa.Column("request_key", sa.String(64), nullable=False),
        sa.Column("key", sa.String(64)),
        sa.Column("state", sa.String(8), nullable=False),
        sa.Column("repo", sa.String(200), nullable=False),
        sa.Column("revision", sa.String(64)),
        sa.Column("request", _JSON, nullable=False),
        sa.Column("body", _JSON),
        sa.Column("problem", _JSON),
        sa.Column("progress", sa.String(200)),
        sa.Column("attempts", sa.Integer, nullable=False),
        sa.Column("delete_key_hash", sa.String(64), nullable=False),
        sa.Column("created_at", _TIME, nullable=False),
        sa.Column("updated_at", _TIME, nullable=False),
        sa.CheckConstraint("state IN ('queued', 'running', 'ready', 'failed')", name="advice_state"),
    )
    in_flight = sa.text("state IN ('queued', 'running')")
    op.create_index("advice_key", "advice", ["key"])
    op.create_index("advice_state", "advice", ["state"])
    op.create_index(
        "advice_in_flight",
        "advice",
        ["request_key"],
        unique=True,
        sqlite_where=in_flight,
        postgresql_where=in_flight,
    )
    op.create_table(
        "branch",
        sa.Column("repo", sa.String(200), primary_key=True),
        sa.Column("name", sa.String(200), primary_key=True),
        sa.Column("revision", sa.String(64), nullable=False),
        sa.Column("seen_at", _TIME, nullable=False),
    )
    op.create_table(
        "repo_listing",
        sa.Column("repo", sa.String(200), primary_key=True),
        sa.Column("revision", sa.String(64), primary_key=True),
        sa.Column("listing", sa.LargeBinary, nullable=False),
        sa.Column("seen_at", _TIME, nullable=False),
    )
    op.create_table(
        "header",
        sa.Column("sha256", sa.String(64), primary_key=True),
        sa.Column("header", sa.LargeBinary, nullable=False),
        sa.Column("seen_at", _TIME, nullable=False),
    )
