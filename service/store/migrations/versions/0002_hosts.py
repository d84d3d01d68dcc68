"""Accounts and their tokens, hosts, validations, runs, results, and whom to believe."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects.postgresql import JSONB

revision = "0002"
down_revision = "0001"

_ID = sa.String(22)
_JSON = sa.JSON().with_variant(JSONB(), "postgresql")
_TIME = sa.DateTime(timezone=True)


def upgrade() -> None:
    """Create the tables; headers are kept in files (service/hub/cache.py)."""
    op.drop_table("header")
    op.create_table(
        "account",
        sa.Column("id", _ID, primary_key=True),
        sa.Column("name", sa.String(120), nullable=False, unique=True),
        sa.Column("pseudonym", sa.String(60), nullable=False, unique=True),
        sa.Column("created_at", _TIME, nullable=False),
        sa.Column("trusted_at", _TIME),
        sa.Column("banned_at", _TIME),
    )
    op.create_table(
        "host",
        sa.Column("id", _ID, primary_key=True),
        sa.Column("account_id", _ID, sa.ForeignKey("account.id", ondelete="CASCADE"), nullable=False, index=True),
        sa.Column("public_key", sa.String(44), nullable=False, unique=True),
        sa.Column("pseudonym", sa.String(60), nullable=False, unique=True),
        sa.Column("state", sa.String(8), nullable=False, index=True),
        sa.Column("visibility", sa.String(8), nullable=False),
        sa.Column("counter", sa.BigInteger, nullable=False),
        sa.Column("probe", _JSON),
        sa.Column("hardware_key", sa.String(64), index=True),
        sa.Column("created_at", _TIME, nullable=False),
        sa.Column("approved_at", _TIME),
        sa.Column("seen_at", _TIME),
        sa.CheckConstraint("state IN ('waiting', 'active', 'paused', 'revoked')", name="host_state"),
        sa.CheckConstraint("visibility IN ('public', 'private')", name="host_visibility"),
    )
    op.create_table(
        "token",
        sa.Column("id", _ID, primary_key=True),
        sa.Column("account_id", _ID, sa.ForeignKey("account.id", ondelete="CASCADE"), nullable=False, index=True),
        sa.Column("token_hash", sa.String(64), nullable=False, unique=True),
        sa.Column("scopes", _JSON, nullable=False),
        sa.Column("created_at", _TIME, nullable=False),
        sa.Column("used_at", _TIME),
        sa.Column("revoked_at", _TIME),
    )
    op.create_table(
        "validation",
        sa.Column("id", _ID, primary_key=True),
        sa.Column("advice_id", _ID, nullable=False, index=True),
        sa.Column("account_id", _ID, sa.ForeignKey("account.id", ondelete="CASCADE"), nullable=False, index=True),
        sa.Column("mode", sa.String(8), nullable=False),
        sa.Column("request", _JSON, nullable=False),
        sa.Column("refused", _JSON, nullable=False),
        sa.Column("idempotency_key", sa.String(64)),
        sa.Column("cancelled_at", _TIME),
        sa.Column("created_at", _TIME, nullable=False),
        sa.CheckConstraint("mode IN ('validate', 'tune')", name="validation_mode"),
        sa.UniqueConstraint("account_id", "idempotency_key"),
    )
    op.create_table(
        "enrolment",
        sa.Column("code_hash", sa.String(64), primary_key=True),
        sa.Column("account_id", _ID, sa.ForeignKey("account.id", ondelete="CASCADE"), nullable=False, index=True),
        sa.Column("visibility", sa.String(8), nullable=False),
        sa.Column("created_at", _TIME, nullable=False),
        sa.Column("expires_at", _TIME, nullable=False),
        sa.Column("host_id", _ID, sa.ForeignKey("host.id", ondelete="SET NULL")),
    )
    op.create_table(
        "host_session",
        sa.Column("token_hash", sa.String(64), primary_key=True),
        sa.Column("host_id", _ID, sa.ForeignKey("host.id", ondelete="CASCADE"), nullable=False, index=True),
        sa.Column("expires_at", _TIME, nullable=False),
    )
    op.create_table(
        "result",
        sa.Column("id", _ID, primary_key=True),
        sa.Column("origin", sa.String(9), nullable=False),
        sa.Column("state", sa.String(11), nullable=False),
        sa.Column("state_reason", sa.String(500)),
        sa.Column("tier", sa.String(13), nullable=False),
        sa.Column("account_id", _ID, sa.ForeignKey("account.id", ondelete="SET NULL")),
        sa.Column("host_id", _ID, sa.ForeignKey("host.id", ondelete="SET NULL")),
        sa.Column("cell", sa.String(64), index=True),
        sa.Column("hardware_key", sa.String(64), index=True),
        sa.Column("engine", sa.String(16), nullable=False),
        sa.Column("build", sa.String(200)),
        sa.Column("repo", sa.String(200)),
        sa.Column("variant", sa.String(200), nullable=False),
        sa.Column("model", _JSON),
        sa.Column("flags", _JSON),
        sa.Column("model_name", sa.String(100), nullable=False),
        sa.Column("model_slug", sa.String(120), nullable=False),
        sa.Column("arch", sa.String(64)),
        sa.Column("n_params", sa.BigInteger),
        sa.Column("n_active", sa.BigInteger),
        sa.Column("bpw", sa.Float),
        sa.Column("hardware", _JSON, nullable=False),
        sa.Column("gpus", sa.String(200), nullable=False),
        sa.Column("rig_slug", sa.String(120), nullable=False),
        sa.Column("vram_mib", sa.Integer, nullable=False),
        sa.Column("cpu", sa.String(100)),
        sa.Column("ram_gib", sa.Integer),
        sa.Column("rows", _JSON, nullable=False),
        sa.Column("rows_key", sa.String(64), nullable=False, index=True),
        sa.Column("failure", _JSON),
        sa.Column("seen", _JSON, nullable=False),
        sa.Column("prediction", _JSON),
        sa.Column("log", sa.LargeBinary),
        sa.Column("command", sa.Text()),
        sa.Column("remarks", sa.String(2000)),
        sa.Column("published", _JSON),
        sa.Column("confirmed", sa.Boolean, nullable=False),
        sa.Column("edit_key_hash", sa.String(64)),
        sa.Column("submission_key", sa.String(64), unique=True),
        sa.Column("measured_at", _TIME, nullable=False, index=True),
        sa.Column("created_at", _TIME, nullable=False),
        sa.CheckConstraint("origin IN ('agent', 'submitted', 'published')", name="result_origin"),
        sa.CheckConstraint("state IN ('shown', 'quarantined', 'hidden', 'deleted')", name="result_state"),
        sa.CheckConstraint("tier IN ('self-reported', 'agent-run', 'replicated')", name="result_tier"),
    )
    op.create_index("result_newest", "result", ["created_at", "id"])
    op.create_index("result_counted_host", "result", ["host_id", "state"])
    op.create_index("result_counted_account", "result", ["account_id", "state", "tier", "host_id"])
    for name in ("account_id", "host_id", "repo", "model_slug", "rig_slug", "tier", "origin"):
        op.create_index(f"result_by_{name}", "result", [name, "created_at", "id"])
    op.create_table(
        "run",
        sa.Column("id", _ID, primary_key=True),
        sa.Column("validation_id", _ID, sa.ForeignKey("validation.id", ondelete="CASCADE"), nullable=False),
        sa.Column("account_id", _ID, sa.ForeignKey("account.id", ondelete="CASCADE"), nullable=False, index=True),
        sa.Column("kind", sa.String(8), nullable=False),
        sa.Column("config_id", sa.String(64)),
        sa.Column("position", sa.Integer, nullable=False),
        sa.Column("variant", sa.String(200), nullable=False),
        sa.Column("cell", sa.String(64), nullable=False, index=True),
        sa.Column("outline", _JSON, nullable=False),
        sa.Column("prediction", _JSON, nullable=False),
        sa.Column("identity", _JSON, nullable=False),
        sa.Column("dropped", _JSON, nullable=False),
        sa.Column("changed", sa.String(500)),
        sa.Column("state", sa.String(9), nullable=False),
        sa.Column("attempt", sa.Integer, nullable=False),
        sa.Column("fence", sa.Integer, nullable=False),
        sa.Column("host_id", _ID, sa.ForeignKey("host.id", ondelete="SET NULL"), index=True),
        sa.Column("leased_at", _TIME),
        sa.Column("leased_until", _TIME),
        sa.Column("progress", sa.String(200)),
        sa.Column("rows", _JSON, nullable=False),
        sa.Column("failure", _JSON),
        sa.Column("report_key", sa.String(64)),
        sa.Column("result_id", _ID),
        sa.Column("previous", sa.Boolean, nullable=False),
        sa.Column("gpu_seconds", sa.Float, nullable=False),
        sa.Column("created_at", _TIME, nullable=False),
        sa.Column("started_at", _TIME),
        sa.Column("ended_at", _TIME, index=True),
        sa.CheckConstraint("kind IN ('config', 'baseline', 'step')", name="run_kind"),
        sa.CheckConstraint(
            "state IN ('queued', 'leased', 'running', 'succeeded', 'failed', 'cancelled')", name="run_state"
        ),
    )
    op.create_index("run_queue", "run", ["state", "created_at"])
    op.create_index("run_result_id", "run", ["result_id"])
    op.create_index("run_validation_id", "run", ["validation_id"])
    op.create_table(
        "run_host",
        sa.Column("run_id", _ID, sa.ForeignKey("run.id", ondelete="CASCADE"), primary_key=True),
        sa.Column("host_id", _ID, sa.ForeignKey("host.id", ondelete="CASCADE"), primary_key=True, index=True),
        sa.Column("match", sa.String(5), nullable=False),
        sa.Column("gpus", _JSON, nullable=False),
        sa.Column("engine_builds", _JSON, nullable=False),
        sa.CheckConstraint("match IN ('exact', 'near')", name="run_host_match"),
    )
    op.create_table(
        "rig",
        sa.Column("account_id", _ID, sa.ForeignKey("account.id", ondelete="CASCADE"), primary_key=True),
        sa.Column("hardware", sa.String(4000), nullable=False),
        sa.Column("saved_at", _TIME, nullable=False),
    )
    op.create_table(
        "interaction",
        sa.Column("id", sa.String(120), primary_key=True),
        sa.Column("account", sa.String(120), nullable=False, index=True),
        sa.Column("place", sa.String(120), nullable=False),
        sa.Column("ask", _JSON),
        sa.Column("reply", _JSON),
        sa.Column("visit", _JSON, nullable=False),
        sa.Column("created_at", _TIME, nullable=False),
        sa.Column("due_at", _TIME),
    )
    op.create_index("interaction_due", "interaction", ["due_at"])
    op.create_table(
        "result_change",
        sa.Column("id", _ID, primary_key=True),
        sa.Column("result_id", _ID, sa.ForeignKey("result.id", ondelete="CASCADE"), nullable=False, index=True),
        sa.Column("at", _TIME, nullable=False),
        sa.Column("what", sa.String(200), nullable=False),
        sa.Column("before", _JSON, nullable=False),
    )
    op.create_table(
        "host_proof",
        sa.Column("host_id", _ID, sa.ForeignKey("host.id", ondelete="CASCADE"), primary_key=True),
        sa.Column("cell", sa.String(64), primary_key=True, index=True),
    )
    op.create_table(
        "audit",
        sa.Column("id", _ID, primary_key=True),
        sa.Column("at", _TIME, nullable=False, index=True),
        sa.Column("by", sa.String(120), nullable=False),
        sa.Column("action", sa.String(16), nullable=False),
        sa.Column("subject", sa.String(200), nullable=False, index=True),
        sa.Column("reason", sa.String(500), nullable=False),
    )
    op.create_table(
        "abuse_report",
        sa.Column("id", _ID, primary_key=True),
        sa.Column("result_id", _ID, sa.ForeignKey("result.id", ondelete="CASCADE"), nullable=False, index=True),
        sa.Column("account_id", _ID, sa.ForeignKey("account.id", ondelete="SET NULL"), index=True),
        sa.Column("kind", sa.String(16), nullable=False),
        sa.Column("text", sa.String(1000), nullable=False),
        sa.Column("created_at", _TIME, nullable=False, index=True),
        sa.Column("closed_at", _TIME),
        sa.Column("closed_by", sa.String(120)),
    )
    op.create_table(
        "calibration",
        sa.Column("version", sa.String(40), primary_key=True),
        sa.Column("body", sa.LargeBinary, nullable=False),
        sa.Column("errors", _JSON, nullable=False),
        sa.Column("n_results", sa.Integer, nullable=False),
        sa.Column("made_at", _TIME, nullable=False, index=True),
    )
