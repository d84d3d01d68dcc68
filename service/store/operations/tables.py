"""Tables of the operator's side: removal requests and scheduled jobs."""

from __future__ import annotations

from sqlalchemy import Boolean, Column, ForeignKey, String, Table

from service.store.tables import UtcDateTime, metadata

# Requests to remove a result, by its submitter or anybody concerned. `contact`: how to reply, emptied when the request
# is closed. `removed`: the decision.
removal_request = Table(
    "removal_request",
    metadata,
    Column("id", String(22), primary_key=True),
    Column("result_id", ForeignKey("result.id", ondelete="CASCADE"), nullable=False, index=True),
    Column("account_id", ForeignKey("account.id", ondelete="SET NULL"), index=True),
    Column("text", String(1000), nullable=False),
    Column("contact", String(200)),
    Column("created_at", UtcDateTime, nullable=False, index=True),
    Column("closed_at", UtcDateTime),
    Column("closed_by", String(120)),
    Column("removed", Boolean),
)

# Scheduled jobs (service.flows.operations.schedule), one row each. `holder`: the process that runs it until
# `held_until`; after that it counts as lost, and another may run it.
job = Table(
    "job",
    metadata,
    Column("name", String(40), primary_key=True),
    Column("due_at", UtcDateTime, nullable=False),
    Column("holder", String(22)),
    Column("held_until", UtcDateTime),
    Column("succeeded_at", UtcDateTime),
    Column("failed_at", UtcDateTime),
)
