"""Alembic's entry: runs the migrations on the connection that `migrate()` hands over.

They name no key, reference or index that `metadata.naming_convention` (service.store.tables) names.
"""

from __future__ import annotations

from alembic import context

from service.store.results.board_tables import board  # a module's tables are known once it is imported

context.configure(
    connection=context.config.attributes["connection"],
    target_metadata=board.metadata,
    render_as_batch=True,
    compare_type=True,
)
with context.begin_transaction():
    context.run_migrations()
