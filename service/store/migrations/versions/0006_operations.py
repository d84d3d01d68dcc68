"""When each scheduled job is due and who runs it; requests to remove a result."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0006"
down_revision = "0005"


def upgrade() -> None:
    """Add the tables, which code of before does not name."""
    op.create_table(
        "job",
        sa.Column("name", sa.String(40), primary_key=True),
        sa.Column("due_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("holder", sa.String(22)),
        sa.Column("held_until", sa.DateTime(timezone=True)),
        sa.Column("succeeded_at", sa.DateTime(timezone=True)),
        sa.Column("failed_at", sa.DateTime(timezone=True)),
    )
    op.create_table(
        "removal_request",
        sa.Column("id", sa.String(22), primary_key=True),
        sa.Column(
            "result_id", sa.String(22), sa.ForeignKey("result.id", ondelete="CASCADE"), nullable=False, index=True
        ),
        sa.Column("account_id", sa.String(22), sa.ForeignKey("account.id", ondelete="SET NULL"), index=True),
        sa.Column("text", sa.String(1000), nullable=False),
        sa.Column("contact", sa.String(200)),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False, index=True),
        sa.Column("closed_at", sa.DateTime(timezone=True)),
        sa.Column("closed_by", sa.String(120)),
        sa.Column("removed", sa.Boolean()),
    )
