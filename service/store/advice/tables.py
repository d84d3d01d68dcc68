"""Tables related to advices: the contents of repos, and payers' shares."""

from __future__ import annotations

from sqlalchemy import Column, Float, LargeBinary, String, Table

from service.store.tables import UtcDateTime, metadata

# The commit of a branch when it was last asked for.
branch = Table(
    "branch",
    metadata,
    Column("repo", String(200), primary_key=True),
    Column("name", String(200), primary_key=True),
    Column("revision", String(64), nullable=False),
    Column("seen_at", UtcDateTime, nullable=False),
)

# A repo's contents at a commit, which never change: a msgpack RepoListing. Also serves as the list of repos read here.
repo_listing = Table(
    "repo_listing",
    metadata,
    Column("repo", String(200), primary_key=True),
    Column("revision", String(64), primary_key=True),
    Column("listing", LargeBinary, nullable=False),
    Column("seen_at", UtcDateTime, nullable=False),
)

# The CPU seconds of advices that each payer has used, on a common clock, itself a row (store/advice/queue.py). Payers
# are network prefixes, accounts and chat places; a row is removed once its payer has used no more than its fair share.
share = Table(
    "share",
    metadata,
    Column("payer", String(160), primary_key=True),
    Column("used", Float, nullable=False),
)
