"""Tables related to advices: what repos hold, and whose turn it is."""

from __future__ import annotations

from sqlalchemy import Column, Float, LargeBinary, String, Table

from service.store.tables import UtcDateTime, metadata

# The commit of a branch, as it was when last asked.
branch = Table(
    "branch",
    metadata,
    Column("repo", String(200), primary_key=True),
    Column("name", String(200), primary_key=True),
    Column("revision", String(64), nullable=False),
    Column("seen_at", UtcDateTime, nullable=False),
)

# What a repo holds at a commit, which never changes: a msgpack RepoListing. Also the list of repos read here.
repo_listing = Table(
    "repo_listing",
    metadata,
    Column("repo", String(200), primary_key=True),
    Column("revision", String(64), primary_key=True),
    Column("listing", LargeBinary, nullable=False),
    Column("seen_at", UtcDateTime, nullable=False),
)

# How many CPU seconds of advices each payer has used, from a common clock, which is a row too (store/advice/queue.py).
# Payers are network prefixes, accounts and chat places; a row goes once its payer has no more than its fair share.
share = Table(
    "share",
    metadata,
    Column("payer", String(160), primary_key=True),
    Column("used", Float, nullable=False),
)
