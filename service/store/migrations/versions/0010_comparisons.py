"""What the printed buffers of results say of their predictions."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "0010"
down_revision = "0009"

_JSON = sa.JSON().with_variant(postgresql.JSONB(), "postgresql")


def upgrade() -> None:
    """Add the table. Results that are here already are compared by the scheduled job."""
    op.create_table(
        "comparison",
        sa.Column("result_id", sa.String(22), sa.ForeignKey("result.id", ondelete="CASCADE"), primary_key=True),
        sa.Column("version", sa.Integer, nullable=False),
        sa.Column("engine", sa.String(16)),
        sa.Column("architecture", sa.String(64), index=True),
        sa.Column("era", sa.String(11)),
        sa.Column("backend", sa.String(16)),
        sa.Column("agrees", _JSON),
        sa.Column("part", sa.String(12), index=True),
        sa.Column("place", sa.String(4)),
        sa.Column("way", sa.String(5)),
        sa.Column("measured", sa.Float),
        sa.Column("expected", sa.Float),
    )
