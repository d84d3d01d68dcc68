"""Who pays for an advice and what it costs, and bodies that are compressed or dropped."""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "0007"
down_revision = "0006"

_COLUMNS: dict[str, Any] = {
    "payer": sa.String(160),
    "cost": sa.Float(),
    "budget": sa.Float(),
    "job": sa.String(64),
    "packed": sa.LargeBinary(),
    "account": sa.Boolean(),
    "read_on": sa.DateTime(timezone=True),
    "first_versions": sa.JSON().with_variant(postgresql.JSONB(), "postgresql"),
}


def upgrade() -> None:
    """Add the columns, empty ones, which code of before does not name; and the shares of payers."""
    for name, kind in _COLUMNS.items():
        op.add_column("advice", sa.Column(name, kind))
    op.create_index("advice_read_on", "advice", ["read_on"])
    op.create_table(
        "share",
        sa.Column("payer", sa.String(160), primary_key=True),
        sa.Column("used", sa.Float, nullable=False),
    )
