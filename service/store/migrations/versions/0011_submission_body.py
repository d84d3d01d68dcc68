"""What was sent with a submission's idempotency key."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0011"
down_revision = "0010"


def upgrade() -> None:
    """Add the column. Of results that are here already it is not known."""
    op.add_column("result", sa.Column("submission_body", sa.String(64)))
