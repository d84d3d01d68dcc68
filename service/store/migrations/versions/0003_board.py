"""The tables of the board."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"

_TIME = sa.DateTime(timezone=True)
_BY_VALUE, _SUMMED = ["slice", "value", "result_id"], ["low", "n_results", "bpw"]
_INDEXES = {
    "board_by_value": [*_BY_VALUE, "measured_at", "engine", "platform", "vram_class", "ram_class"],
    "board_by_date": ["slice", "measured_at", "result_id"],
    "board_by_bits": ["slice", "bpw", "result_id"],
    "board_lead": ["lead_key", "slice", "value", "result_id"],
    "board_model": ["model_slug", *_BY_VALUE, "place", "variant", "rig_slug", *_SUMMED],
    "board_rig": ["rig_slug", *_BY_VALUE, "place", "model_slug", *_SUMMED],
    "board_arch": ["arch", "slice", "value", "result_id"],
    "board_variant": ["variant", "slice", "value", "result_id"],
    "board_vram": ["vram_class", "slice", "value", "result_id"],
    "board_ram": ["ram_class", "slice", "value", "result_id"],
    "board_result_id": ["result_id"],
}


def upgrade() -> None:
    """Create the tables."""
    op.create_table(
        "result_speed",
        sa.Column("result_id", sa.String(22), sa.ForeignKey("result.id", ondelete="CASCADE"), primary_key=True),
        sa.Column("depth", sa.Integer, primary_key=True),
        sa.Column("group_key", sa.BigInteger, nullable=False, index=True),
        sa.Column("platform", sa.String(11), nullable=False),
        sa.Column("floor", sa.Integer, nullable=False),
        sa.Column("tg", sa.Float),
        sa.Column("pp", sa.Float),
        sa.Column("measured_at", _TIME, nullable=False),
    )
    op.create_table(
        "board",
        sa.Column("group_key", sa.BigInteger, primary_key=True),
        sa.Column("slice", sa.Integer, primary_key=True),
        sa.Column("place", sa.Integer, primary_key=True),
        sa.Column("result_id", sa.String(22), sa.ForeignKey("result.id", ondelete="CASCADE"), nullable=False),
        sa.Column("lead_key", sa.BigInteger, nullable=False),
        sa.Column("value", sa.Float, nullable=False),
        sa.Column("tg", sa.Float),
        sa.Column("pp", sa.Float),
        sa.Column("measured_at", _TIME, nullable=False),
        sa.Column("model_slug", sa.String(120), nullable=False),
        sa.Column("arch", sa.String(64), nullable=False),
        sa.Column("variant", sa.String(200), nullable=False),
        sa.Column("bpw", sa.Float, nullable=False),
        sa.Column("engine", sa.String(16), nullable=False),
        sa.Column("rig_slug", sa.String(120), nullable=False),
        sa.Column("vram_class", sa.Integer, nullable=False),
        sa.Column("ram_class", sa.Integer, nullable=False),
        sa.Column("platform", sa.String(11), nullable=False),
        sa.Column("n_results", sa.Integer, nullable=False),
        sa.Column("low", sa.Float, nullable=False),
        sa.Column("middle", sa.Float, nullable=False),
        sa.Column("high", sa.Float, nullable=False),
    )
    for name, columns in _INDEXES.items():
        op.create_index(name, "board", columns)
    op.create_table(
        "board_name",
        sa.Column("kind", sa.String(8), primary_key=True),
        sa.Column("slug", sa.String(200), primary_key=True),
        sa.Column("label", sa.String(200), nullable=False),
        sa.Column("searched", sa.String(420), nullable=False),
    )
