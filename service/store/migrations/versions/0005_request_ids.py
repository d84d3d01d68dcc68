"""The request that an advice or a run comes from, so that one word finds it in all logs."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0004"


def upgrade() -> None:
    """Add the columns: empty ones, which code of before does not name."""
    for table in ("advice", "run"):
        op.add_column(table, sa.Column("request_id", sa.String(64)))
