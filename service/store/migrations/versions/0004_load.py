"""The number by which it is known whether answers that were kept are still true."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"


def upgrade() -> None:
    """Create the table with its one row."""
    table = op.create_table(
        "results_version",
        sa.Column("id", sa.Integer, primary_key=True),
        sa.Column("changes", sa.BigInteger, nullable=False),
    )
    op.bulk_insert(table, [{"id": 1, "changes": 0}])
