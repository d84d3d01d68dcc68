"""The board's tables: the speeds of results, arranged for queries. All are derived from `result`."""

from __future__ import annotations

from sqlalchemy import BigInteger, Column, Float, ForeignKey, Index, Integer, String, Table

from service.store.tables import UtcDateTime, metadata

# A counting result's speeds at a depth class (service.engine.measured.classes), in tokens per second. `floor`: 0
# self-reported, 1 agent-run, 2 replicated. `group_key`: hash of everything that defines a group (see board.py).
result_speed = Table(
    "result_speed",
    metadata,
    Column("result_id", ForeignKey("result.id", ondelete="CASCADE"), primary_key=True),
    Column("depth", Integer, primary_key=True, autoincrement=False),
    Column("group_key", BigInteger, nullable=False, index=True),
    Column("platform", String(11), nullable=False),
    Column("floor", Integer, nullable=False),
    Column("tg", Float),
    Column("pp", Float),
    Column("measured_at", UtcDateTime, nullable=False),
)

_BY_VALUE, _SUMMED = ("slice", "value", "result_id"), ("low", "n_results", "bpw")

# The leading results of a group: no other is both faster and as new. `slice`: phase, depth and minimum trust; `value`:
# tokens per second of that phase; `lead_key`: hash of model, rig and engine, whose fastest row a page of the board
# shows. Every row states how many results it was chosen from, and their spread.
board = Table(
    "board",
    metadata,
    Column("group_key", BigInteger, primary_key=True, autoincrement=False),
    Column("slice", Integer, primary_key=True, autoincrement=False),
    Column("place", Integer, primary_key=True, autoincrement=False),
    Column("result_id", ForeignKey("result.id", ondelete="CASCADE"), nullable=False, index=True),
    Column("lead_key", BigInteger, nullable=False),
    Column("value", Float, nullable=False),
    Column("tg", Float),
    Column("pp", Float),
    Column("measured_at", UtcDateTime, nullable=False),
    Column("model_slug", String(120), nullable=False),
    Column("arch", String(64), nullable=False),
    Column("variant", String(200), nullable=False),
    Column("bpw", Float, nullable=False),
    Column("engine", String(16), nullable=False),
    Column("rig_slug", String(120), nullable=False),
    Column("vram_class", Integer, nullable=False),
    Column("ram_class", Integer, nullable=False),
    Column("platform", String(11), nullable=False),
    Column("n_results", Integer, nullable=False),
    Column("low", Float, nullable=False),
    Column("middle", Float, nullable=False),
    Column("high", Float, nullable=False),
    # The last columns let queries walk an index and skip or sum most of its rows without reading the table.
    Index("board_by_value", *_BY_VALUE, "measured_at", "engine", "platform", "vram_class", "ram_class"),
    Index("board_by_date", "slice", "measured_at", "result_id"),
    Index("board_by_bits", "slice", "bpw", "result_id"),
    Index("board_lead", "lead_key", "slice", "value", "result_id"),
    Index("board_model", "model_slug", *_BY_VALUE, "place", "variant", "rig_slug", *_SUMMED),
    Index("board_rig", "rig_slug", *_BY_VALUE, "place", "model_slug", *_SUMMED),
    Index("board_arch", "arch", "slice", "value", "result_id"),
    Index("board_variant", "variant", "slice", "value", "result_id"),
    Index("board_vram", "vram_class", "slice", "value", "result_id"),
    Index("board_ram", "ram_class", "slice", "value", "result_id"),
)

# Names on the board, for menus and searches: `kind` is model, rig, variant or arch.
board_name = Table(
    "board_name",
    metadata,
    Column("kind", String(8), primary_key=True),
    Column("slug", String(200), primary_key=True),
    Column("label", String(200), nullable=False),
    Column("searched", String(420), nullable=False),
)
