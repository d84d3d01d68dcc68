"""Other services whose results were imported, and which results those are."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0009"
down_revision = "0008"


def upgrade() -> None:
    """Add the table and the columns. What is here already is from here."""
    op.create_table(
        "source",
        sa.Column("key", sa.String(44), primary_key=True),
        sa.Column("address", sa.String(300), nullable=False),
        sa.Column("made_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("imported_at", sa.DateTime(timezone=True), nullable=False),
    )
    op.add_column("result", sa.Column("source", sa.String(44)))
    op.add_column("result", sa.Column("source_owner", sa.String(60)))
    op.create_index("result_source", "result", ["source"])
