"""Alembic's entry: runs the migrations on the connection that `migrate()` hands over."""

from __future__ import annotations

from alembic import context

from service.store import board_tables

context.configure(
    connection=context.config.attributes["connection"],
    target_metadata=board_tables.board.metadata,
    render_as_batch=True,
    compare_type=True,
)
with context.begin_transaction():
    context.run_migrations()
