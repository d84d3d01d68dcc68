"""The tables, with the meaning of each column; the queries are in one file per aggregate."""

from __future__ import annotations

from datetime import UTC, datetime

from sqlalchemy import (
    JSON,
    BigInteger,
    Boolean,
    CheckConstraint,
    Column,
    DateTime,
    Dialect,
    Float,
    ForeignKey,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    String,
    Table,
    Text,
    TypeDecorator,
    UniqueConstraint,
    text,
)
from sqlalchemy.dialects.postgresql import JSONB


class UtcDateTime(TypeDecorator[datetime]):
    """A point in time: given and returned with its zone, stored in UTC on every database."""

    impl = DateTime(timezone=True)
    cache_ok = True

    def process_bind_param(self, value: datetime | None, dialect: Dialect) -> datetime | None:
        """Return `value` in UTC. Raises ValueError for a time without a zone."""
        if value is not None and value.tzinfo is None:
            raise ValueError("a time without its zone is not an instant")
        return None if value is None else value.astimezone(UTC)

    def process_result_value(self, value: datetime | None, dialect: Dialect) -> datetime | None:
        """Return `value` in UTC; SQLite loses the zone."""
        if value is None:
            return None
        return value.replace(tzinfo=UTC) if value.tzinfo is None else value.astimezone(UTC)


_IN_FLIGHT = text("state IN ('queued', 'running')")
_JSON = JSON(none_as_null=True).with_variant(JSONB(none_as_null=True), "postgresql")

metadata = MetaData(
    naming_convention={
        "pk": "%(table_name)s_pk",
        "ix": "%(table_name)s_%(column_0_N_name)s",
        "ck": "%(constraint_name)s",
        "uq": "%(table_name)s_%(column_0_N_name)s_unique",
        "fk": "%(table_name)s_%(column_0_N_name)s_fk",
    }
)

# `request_key` is the hash of the request with the branch as given, `key` the same with the commit: identical requests
# in flight share a row by the first, and a finished advice is found by the second. `request` is the canonical
# AdviceRequest, `problem` what service.errors.describe returns, `delete_key_hash` a sha256. `packed` is the AdviceBody,
# compressed (store/advice/advices.py); `body` holds it in rows from before 0007. While an advice is open, `payer` is
# whose share it uses (store/advice/queue.py), `cost` its estimated CPU seconds, `budget` the CPU seconds it may take,
# `job` the job that computes it. `account`: whether it was requested with an account. `read_on`: about when its body
# was last read, null if there is none. `first_versions`: the versions of its first computation.
advice = Table(
    "advice",
    metadata,
    Column("id", String(22), primary_key=True),
    Column("request_key", String(64), nullable=False),
    Column("key", String(64), index=True),
    Column("state", String(8), nullable=False, index=True),
    Column("repo", String(200), nullable=False),
    Column("revision", String(64)),
    Column("request", _JSON, nullable=False),
    Column("body", _JSON),
    Column("problem", _JSON),
    Column("progress", String(200)),
    Column("attempts", Integer, nullable=False),
    Column("delete_key_hash", String(64), nullable=False),
    Column("created_at", UtcDateTime, nullable=False),
    Column("updated_at", UtcDateTime, nullable=False),
    Column("request_id", String(64)),  # of the request that asked for it: docs/logs.md
    Column("payer", String(160)),
    Column("cost", Float),
    Column("budget", Float),
    Column("job", String(64)),
    Column("packed", LargeBinary),
    Column("account", Boolean),
    Column("read_on", UtcDateTime, index=True),
    Column("first_versions", _JSON),
    CheckConstraint("state IN ('queued', 'running', 'ready', 'failed')", name="advice_state"),
    Index("advice_in_flight", "request_key", unique=True, sqlite_where=_IN_FLIGHT, postgresql_where=_IN_FLIGHT),
)

# One row: how often results, or the set of those that are shown, have changed (service.store.versions).
results_version = Table(
    "results_version",
    metadata,
    Column("id", Integer, primary_key=True, autoincrement=False),
    Column("changes", BigInteger, nullable=False),
)

# Accounts, which may do more than ask. `name` is the operator's choice, or `discord:<id>`, `slack:<team>:<user>`;
# others see only the `pseudonym`. `trusted_at`: an operator vouched for it; `banned_at`: its tokens, hosts and results
# no longer count.
account = Table(
    "account",
    metadata,
    Column("id", String(22), primary_key=True),
    Column("name", String(120), nullable=False, unique=True),
    Column("pseudonym", String(60), nullable=False, unique=True),
    Column("created_at", UtcDateTime, nullable=False),
    Column("trusted_at", UtcDateTime),
    Column("banned_at", UtcDateTime),
)

# An account's API tokens, by their sha256. `scopes` is a list of submit, validate, host, operator.
token = Table(
    "token",
    metadata,
    Column("id", String(22), primary_key=True),
    Column("account_id", ForeignKey("account.id", ondelete="CASCADE"), nullable=False, index=True),
    Column("token_hash", String(64), nullable=False, unique=True),
    Column("scopes", _JSON, nullable=False),
    Column("created_at", UtcDateTime, nullable=False),
    Column("used_at", UtcDateTime),
    Column("revoked_at", UtcDateTime),
)

# The hardware that a Discord or Slack user had us remember, as typed (reduced).
rig = Table(
    "rig",
    metadata,
    Column("account_id", ForeignKey("account.id", ondelete="CASCADE"), primary_key=True),
    Column("hardware", String(4000), nullable=False),
    Column("saved_at", UtcDateTime, nullable=False),
)

# Questions to bots, until they are answered; service.wire.bots explains the columns. An answered one stays, without its
# text and the secrets of its reply, for as long as its signed request could be replayed.
interaction = Table(
    "interaction",
    metadata,
    Column("id", String(120), primary_key=True),
    Column("account", String(120), nullable=False, index=True),
    Column("place", String(120), nullable=False),
    Column("ask", _JSON),
    Column("reply", _JSON),
    Column("visit", _JSON, nullable=False),
    Column("created_at", UtcDateTime, nullable=False),
    Column("due_at", UtcDateTime),
    Index("interaction_due", "due_at"),
)

# Machines that measure. `counter`: of the last signed call, only grows. `probe`: the host's latest description of
# itself (service.wire.measuring.hosts.Probe), `hardware_key` the hash of that hardware's canonical form.
host = Table(
    "host",
    metadata,
    Column("id", String(22), primary_key=True),
    Column("account_id", ForeignKey("account.id", ondelete="CASCADE"), nullable=False, index=True),
    Column("public_key", String(44), nullable=False, unique=True),
    Column("pseudonym", String(60), nullable=False, unique=True),
    Column("state", String(8), nullable=False, index=True),
    Column("visibility", String(8), nullable=False),
    Column("counter", BigInteger, nullable=False),
    Column("probe", _JSON),
    Column("hardware_key", String(64), index=True),
    Column("created_at", UtcDateTime, nullable=False),
    Column("approved_at", UtcDateTime),
    Column("seen_at", UtcDateTime),
    CheckConstraint("state IN ('waiting', 'active', 'paused', 'revoked')", name="host_state"),
    CheckConstraint("visibility IN ('public', 'private')", name="host_visibility"),
)

# Single-use codes by which a machine joins; `host_id` is the host that used it.
enrolment = Table(
    "enrolment",
    metadata,
    Column("code_hash", String(64), primary_key=True),
    Column("account_id", ForeignKey("account.id", ondelete="CASCADE"), nullable=False, index=True),
    Column("visibility", String(8), nullable=False),
    Column("created_at", UtcDateTime, nullable=False),
    Column("expires_at", UtcDateTime, nullable=False),
    Column("host_id", ForeignKey("host.id", ondelete="SET NULL")),
)

# Hosts' session tokens, by their sha256: valid for an hour, and for `/v1/agent` only.
host_session = Table(
    "host_session",
    metadata,
    Column("token_hash", String(64), primary_key=True),
    Column("host_id", ForeignKey("host.id", ondelete="CASCADE"), nullable=False, index=True),
    Column("expires_at", UtcDateTime, nullable=False),
)

# Requests to have configs of an advice measured. `request` is the ValidationRequest as sent.
validation = Table(
    "validation",
    metadata,
    Column("id", String(22), primary_key=True),
    Column("advice_id", String(22), nullable=False, index=True),
    Column("account_id", ForeignKey("account.id", ondelete="CASCADE"), nullable=False, index=True),
    Column("mode", String(8), nullable=False),
    Column("request", _JSON, nullable=False),
    Column("refused", _JSON, nullable=False),
    Column("idempotency_key", String(64)),
    Column("cancelled_at", UtcDateTime),
    Column("created_at", UtcDateTime, nullable=False),
    UniqueConstraint("account_id", "idempotency_key"),
    CheckConstraint("mode IN ('validate', 'tune')", name="validation_mode"),
)

# Measurements of one config each. `outline` is the part that is the same on every host (RunOutline of
# wire/measuring/agent.py). `fence` grows with each lease and accompanies every write of the host that holds it;
# `attempt` counts leases that ended without a result, except those that gave way. `cell` is the hash of files, flags,
# engine and cards, which with a host's `hardware_key` finds earlier measurements. `prediction` is the advice's,
# `changed` what a step of tuning changes, `identity` what its result will be filed under. `record`: what it is judged
# by, fixed at its lease (service.store.measuring.runs).
run = Table(
    "run",
    metadata,
    Column("id", String(22), primary_key=True),
    Column("validation_id", ForeignKey("validation.id", ondelete="CASCADE"), nullable=False, index=True),
    Column("account_id", ForeignKey("account.id", ondelete="CASCADE"), nullable=False, index=True),
    Column("kind", String(8), nullable=False),
    Column("config_id", String(64)),
    Column("position", Integer, nullable=False),
    Column("variant", String(200), nullable=False),
    Column("cell", String(64), nullable=False, index=True),
    Column("outline", _JSON, nullable=False),
    Column("prediction", _JSON, nullable=False),
    Column("identity", _JSON, nullable=False),
    Column("dropped", _JSON, nullable=False),
    Column("changed", String(500)),
    Column("state", String(9), nullable=False),
    Column("attempt", Integer, nullable=False),
    Column("fence", Integer, nullable=False),
    Column("host_id", ForeignKey("host.id", ondelete="SET NULL"), index=True),
    Column("leased_at", UtcDateTime),
    Column("leased_until", UtcDateTime),
    Column("progress", String(200)),
    Column("rows", _JSON, nullable=False),
    Column("failure", _JSON),
    Column("report_key", String(64)),
    Column("result_id", String(22), index=True),
    Column("previous", Boolean, nullable=False),
    Column("gpu_seconds", Float, nullable=False),
    Column("created_at", UtcDateTime, nullable=False),
    Column("started_at", UtcDateTime),
    Column("ended_at", UtcDateTime, index=True),
    Column("request_id", String(64)),
    Column("record", _JSON),
    CheckConstraint("state IN ('queued', 'leased', 'running', 'succeeded', 'failed', 'cancelled')", name="run_state"),
    CheckConstraint("kind IN ('config', 'baseline', 'step')", name="run_kind"),
    Index("run_queue", "state", "created_at"),
)

# The hosts that may take a run, with their own part of its document: cards, and builds of the engine. `terms`
# (service.store.measuring.runs) hold for the machine of `hardware_key`, which the host must still be. `dropped`: how
# often it took the run without returning a result; after giving way to its owner it is not asked before `not_before`.
run_host = Table(
    "run_host",
    metadata,
    Column("run_id", ForeignKey("run.id", ondelete="CASCADE"), primary_key=True),
    Column("host_id", ForeignKey("host.id", ondelete="CASCADE"), primary_key=True, index=True),
    Column("match", String(5), nullable=False),
    Column("gpus", _JSON, nullable=False),
    Column("engine_builds", _JSON, nullable=False),
    Column("hardware_key", String(64)),
    Column("terms", _JSON),
    Column("dropped", Integer, nullable=False, server_default="0"),
    Column("not_before", UtcDateTime),
    CheckConstraint("match IN ('exact', 'near')", name="run_host_match"),
)

# Results, measured by agents or people, or published elsewhere. Of published ones only the text is stored: no cell,
# key, flags or model. `model` is repo, revision, variant and files with their hashes; `seen` what was printed and
# sampled besides the rows; `log` the reduced text, compressed; `command` the reduced words as given. The columns from
# `model_name` to `ram_gib` are what people search by (service.engine.measured.identity). `rows_key` is the hash of
# model, engine and rows, which detects the same measurement sent twice; `submission_key` the hash of the sender and
# their idempotency key, `submission_body` that of what they sent with it. Trust and states: docs/trust.md.
LISTED_BY = ("account_id", "host_id", "repo", "model_slug", "rig_slug", "tier", "origin")  # newest first
result = Table(
    "result",
    metadata,
    Column("id", String(22), primary_key=True),
    Column("origin", String(9), nullable=False),
    Column("state", String(11), nullable=False),
    Column("state_reason", String(500)),
    Column("tier", String(13), nullable=False),
    Column("account_id", ForeignKey("account.id", ondelete="SET NULL")),
    Column("host_id", ForeignKey("host.id", ondelete="SET NULL")),
    Column("cell", String(64), index=True),
    Column("hardware_key", String(64), index=True),
    Column("engine", String(16), nullable=False),
    Column("build", String(200)),
    Column("repo", String(200)),
    Column("variant", String(200), nullable=False),
    Column("model", _JSON),
    Column("flags", _JSON),
    Column("model_name", String(100), nullable=False),
    Column("model_slug", String(120), nullable=False),
    Column("arch", String(64)),
    Column("n_params", BigInteger),
    Column("n_active", BigInteger),
    Column("bpw", Float),
    Column("hardware", _JSON, nullable=False),
    Column("gpus", String(200), nullable=False),
    Column("rig_slug", String(120), nullable=False),
    Column("vram_mib", Integer, nullable=False),
    Column("cpu", String(100)),
    Column("ram_gib", Integer),
    Column("rows", _JSON, nullable=False),
    Column("rows_key", String(64), nullable=False, index=True),
    Column("failure", _JSON),
    Column("seen", _JSON, nullable=False),
    Column("prediction", _JSON),
    Column("log", LargeBinary),
    Column("command", Text),
    Column("remarks", String(2000)),
    Column("published", _JSON),
    Column("confirmed", Boolean, nullable=False),
    Column("source", String(44), index=True),
    Column("source_owner", String(60)),
    Column("edit_key_hash", String(64)),
    Column("submission_key", String(64), unique=True),
    Column("submission_body", String(64)),
    Column("measured_at", UtcDateTime, nullable=False, index=True),
    Column("created_at", UtcDateTime, nullable=False),
    CheckConstraint("origin IN ('agent', 'submitted', 'published')", name="result_origin"),
    CheckConstraint("state IN ('shown', 'quarantined', 'hidden', 'deleted')", name="result_state"),
    CheckConstraint("tier IN ('self-reported', 'agent-run', 'replicated')", name="result_tier"),
    Index("result_newest", "created_at", "id"),
    Index("result_counted_host", "host_id", "state"),
    Index("result_counted_account", "account_id", "state", "tier", "host_id"),
    *(Index(f"result_by_{name}", name, "created_at", "id") for name in LISTED_BY),
)

# Other services whose results were imported: `key` is the Ed25519 key (Base64) that signs their dumps, `made_at` when
# the imported dump was made. Results refer to it by `source`, and by `source_owner` to their owner there, if that is an
# account old enough.
source = Table(
    "source",
    metadata,
    Column("key", String(44), primary_key=True),
    Column("address", String(300), nullable=False),
    Column("made_at", UtcDateTime, nullable=False),
    Column("imported_at", UtcDateTime, nullable=False),
)

# Submitters' changes to their results: `before` has each field's old value, in words. Of a deleted result, only the
# deletion is recorded.
result_change = Table(
    "result_change",
    metadata,
    Column("id", String(22), primary_key=True),
    Column("result_id", ForeignKey("result.id", ondelete="CASCADE"), nullable=False, index=True),
    Column("at", UtcDateTime, nullable=False),
    Column("what", String(200), nullable=False),
    Column("before", _JSON, nullable=False),
)

# Cells in which a host agreed with a result that others replicated without its owner; one such proof makes its other
# results count as agent-run. `service.flows.results.trust` rewrites all proofs of a cell when anything in it changes.
host_proof = Table(
    "host_proof",
    metadata,
    Column("host_id", ForeignKey("host.id", ondelete="CASCADE"), primary_key=True),
    Column("cell", String(64), primary_key=True, index=True),
)

# Operators' acts: `by` is an account's name, or stands for the command on the machine itself; `subject` a result's id
# or an account's name. Rows are never removed.
audit = Table(
    "audit",
    metadata,
    Column("id", String(22), primary_key=True),
    Column("at", UtcDateTime, nullable=False, index=True),
    Column("by", String(120), nullable=False),
    Column("action", String(16), nullable=False),
    Column("subject", String(200), nullable=False, index=True),
    Column("reason", String(500), nullable=False),
)

# Readers' reports of what is wrong with a result. `account_id` is null for somebody without a token.
abuse_report = Table(
    "abuse_report",
    metadata,
    Column("id", String(22), primary_key=True),
    Column("result_id", ForeignKey("result.id", ondelete="CASCADE"), nullable=False, index=True),
    Column("account_id", ForeignKey("account.id", ondelete="SET NULL"), index=True),
    Column("kind", String(16), nullable=False),
    Column("text", String(1000), nullable=False),
    Column("created_at", UtcDateTime, nullable=False, index=True),
    Column("closed_at", UtcDateTime),
    Column("closed_by", String(120)),
)

# Calibrations fitted to this database's results; the newest is in force. `body` is a Calibration of
# service.engine.calibration as JSON, `errors` what it was judged by (service.store.results.calibrations.Errors).
calibration = Table(
    "calibration",
    metadata,
    Column("version", String(40), primary_key=True),
    Column("body", LargeBinary, nullable=False),
    Column("errors", _JSON, nullable=False),
    Column("n_results", Integer, nullable=False),
    Column("made_at", UtcDateTime, nullable=False, index=True),
)

# A result's printed buffers compared with their prediction (service.engine.check.learning) by the `version` of the
# engine model; all rows with the same difference make one entry of `/accuracy`. Columns after the first two are null if
# the result tells nothing, those from `part` on if everything is as computed.
comparison = Table(
    "comparison",
    metadata,
    Column("result_id", ForeignKey("result.id", ondelete="CASCADE"), primary_key=True),
    Column("version", Integer, nullable=False),
    Column("engine", String(16)),
    Column("architecture", String(64)),
    Column("era", String(11)),
    Column("backend", String(16)),
    Column("agrees", _JSON),
    Column("part", String(12), index=True),
    Column("place", String(4)),
    Column("way", String(5)),
    Column("measured", Float),
    Column("expected", Float),
    Index("comparison_architecture", "architecture"),
)

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
share = Table("share", metadata, Column("payer", String(160), primary_key=True), Column("used", Float, nullable=False))

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
