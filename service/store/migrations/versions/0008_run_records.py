"""On what terms a host may take a run, how often it dropped it, and what a leased run is judged by."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "0008"
down_revision = "0007"

_JSON = sa.JSON().with_variant(postgresql.JSONB(), "postgresql")


def upgrade() -> None:
    """Add the columns. Of runs that were planned before they are empty, and no host is offered those."""
    op.add_column("run", sa.Column("record", _JSON))
    op.add_column("run_host", sa.Column("hardware_key", sa.String(64)))
    op.add_column("run_host", sa.Column("terms", _JSON))
    op.add_column("run_host", sa.Column("dropped", sa.Integer, nullable=False, server_default="0"))
    op.add_column("run_host", sa.Column("not_before", sa.DateTime(timezone=True)))
