"""Alembic's entry: runs the migrations on the connection that `migrate()` hands over.

They name no key, reference or index that `metadata.naming_convention` (service.store.tables) names.
"""

from __future__ import annotations

from alembic import context

from service.store.advice import tables as advice_tables
from service.store.operations import tables as operations_tables
from service.store.results import board_tables

_LAST_TABLES = (
    board_tables.board,
    operations_tables.job,
    advice_tables.share,
)  # a module's tables are known once it is imported
context.configure(
    connection=context.config.attributes["connection"],
    target_metadata=_LAST_TABLES[0].metadata,
    render_as_batch=True,
    compare_type=True,
)
with context.begin_transaction():
    context.run_migrations()
