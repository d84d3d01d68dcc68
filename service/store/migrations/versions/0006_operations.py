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
        sa.Column("name", sa.String(40), nullable=False),
        sa.Column("due_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("holder", sa.String(22)),
        sa.Column("held_until", sa.DateTime(timezone=True)),
        sa.Column("succeeded_at", sa.DateTime(timezone=True)),
        sa.Column("failed_at", sa.DateTime(timezone=True)),
        sa.PrimaryKeyConstraint("name", name="job_pk"),
    )
    op.create_table(
        "removal_request",
        sa.Column("id", sa.String(22), nullable=False),
        sa.Column("result_id", sa.String(22), nullable=False),
        sa.Column("account_id", sa.String(22)),
        sa.Column("text", sa.String(1000), nullable=False),
        sa.Column("contact", sa.String(200)),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("closed_at", sa.DateTime(timezone=True)),
        sa.Column("closed_by", sa.String(120)),
        sa.Column("removed", sa.Boolean()),
        sa.PrimaryKeyConstraint("id", name="removal_request_pk"),
        sa.ForeignKeyConstraint(["result_id"], ["result.id"], name="removal_request_result_id_fk", ondelete="CASCADE"),
        sa.ForeignKeyConstraint(
            ["account_id"], ["account.id"], name="removal_request_account_id_fk", ondelete="SET NULL"
        ),
    )
    for column in ("result_id", "account_id", "created_at"):
        op.create_index(f"removal_request_{column}", "removal_request", [column])
