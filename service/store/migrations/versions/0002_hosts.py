"""Accounts and their tokens, hosts, validations, runs, results, and whom to believe."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects.postgresql import JSONB

revision = "0002"
down_revision = "0001"

_JSON = sa.JSON().with_variant(JSONB(), "postgresql")
_TIME = sa.DateTime(timezone=True)


def upgrade() -> None:
    """Create the tables; headers are kept in files (service/hub/cache.py)."""
    op.drop_table("header")
    _create_account()
    _create_host()
    _create_token()
    _create_validation()
    _create_enrolment()
    _create_host_session()
    _create_result()
    _create_run()
    _create_run_host()
    _create_rig()
    _create_interaction()
    _create_result_change()
    _create_host_proof()
    _create_audit()
    _create_abuse_report()
    _create_calibration()


def _create_account() -> None:
    op.create_table(
        "account",
        sa.Column("id", sa.String(22), nullable=False),
        sa.Column("name", sa.String(120), nullable=False),
        sa.Column("pseudonym", sa.String(60), nullable=False),
        sa.Column("created_at", _TIME, nullable=False),
        sa.Column("trusted_at", _TIME),
        sa.Column("banned_at", _TIME),
        sa.PrimaryKeyConstraint("id", name="account_pk"),
        sa.UniqueConstraint("name", name="account_name_unique"),
        sa.UniqueConstraint("pseudonym", name="account_pseudonym_unique"),
    )


def _create_host() -> None:
    op.create_table(
        "host",
        sa.Column("id", sa.String(22), nullable=False),
        sa.Column("account_id", sa.String(22), nullable=False),
        sa.Column("public_key", sa.String(44), nullable=False),
        sa.Column("pseudonym", sa.String(60), nullable=False),
        sa.Column("state", sa.String(8), nullable=False),
        sa.Column("visibility", sa.String(8), nullable=False),
        sa.Column("counter", sa.BigInteger, nullable=False),
        sa.Column("probe", _JSON),
        sa.Column("hardware_key", sa.String(64)),
        sa.Column("created_at", _TIME, nullable=False),
        sa.Column("approved_at", _TIME),
        sa.Column("seen_at", _TIME),
        sa.CheckConstraint("state IN ('waiting', 'active', 'paused', 'revoked')", name="host_state"),
        sa.CheckConstraint("visibility IN ('public', 'private')", name="host_visibility"),
        sa.ForeignKeyConstraint(["account_id"], ["account.id"], name="host_account_id_fk", ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("id", name="host_pk"),
        sa.UniqueConstraint("pseudonym", name="host_pseudonym_unique"),
        sa.UniqueConstraint("public_key", name="host_public_key_unique"),
    )
    op.create_index("host_account_id", "host", ["account_id"])
    op.create_index("host_hardware_key", "host", ["hardware_key"])
    op.create_index("host_state", "host", ["state"])


def _create_token() -> None:
    op.create_table(
        "token",
        sa.Column("id", sa.String(22), nullable=False),
        sa.Column("account_id", sa.String(22), nullable=False),
        sa.Column("token_hash", sa.String(64), nullable=False),
        sa.Column("scopes", _JSON, nullable=False),
        sa.Column("created_at", _TIME, nullable=False),
        sa.Column("used_at", _TIME),
        sa.Column("revoked_at", _TIME),
        sa.ForeignKeyConstraint(["account_id"], ["account.id"], name="token_account_id_fk", ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("id", name="token_pk"),
        sa.UniqueConstraint("token_hash", name="token_token_hash_unique"),
    )
    op.create_index("token_account_id", "token", ["account_id"])


def _create_validation() -> None:
    op.create_table(
        "validation",
        sa.Column("id", sa.String(22), nullable=False),
        sa.Column("advice_id", sa.String(22), nullable=False),
        sa.Column("account_id", sa.String(22), nullable=False),
        sa.Column("mode", sa.String(8), nullable=False),
        sa.Column("request", _JSON, nullable=False),
        sa.Column("refused", _JSON, nullable=False),
        sa.Column("idempotency_key", sa.String(64)),
        sa.Column("cancelled_at", _TIME),
        sa.Column("created_at", _TIME, nullable=False),
        sa.CheckConstraint("mode IN ('validate', 'tune')", name="validation_mode"),
        sa.ForeignKeyConstraint(["account_id"], ["account.id"], name="validation_account_id_fk", ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("id", name="validation_pk"),
        sa.UniqueConstraint("account_id", "idempotency_key", name="validation_account_id_idempotency_key_unique"),
    )
    op.create_index("validation_account_id", "validation", ["account_id"])
    op.create_index("validation_advice_id", "validation", ["advice_id"])


def _create_enrolment() -> None:
    op.create_table(
        "enrolment",
        sa.Column("code_hash", sa.String(64), nullable=False),
        sa.Column("account_id", sa.String(22), nullable=False),
        sa.Column("visibility", sa.String(8), nullable=False),
        sa.Column("created_at", _TIME, nullable=False),
        sa.Column("expires_at", _TIME, nullable=False),
        sa.Column("host_id", sa.String(22)),
        sa.ForeignKeyConstraint(["account_id"], ["account.id"], name="enrolment_account_id_fk", ondelete="CASCADE"),
        sa.ForeignKeyConstraint(["host_id"], ["host.id"], name="enrolment_host_id_fk", ondelete="SET NULL"),
        sa.PrimaryKeyConstraint("code_hash", name="enrolment_pk"),
    )
    op.create_index("enrolment_account_id", "enrolment", ["account_id"])


def _create_host_session() -> None:
    op.create_table(
        "host_session",
        sa.Column("token_hash", sa.String(64), nullable=False),
        sa.Column("host_id", sa.String(22), nullable=False),
        sa.Column("expires_at", _TIME, nullable=False),
        sa.ForeignKeyConstraint(["host_id"], ["host.id"], name="host_session_host_id_fk", ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("token_hash", name="host_session_pk"),
    )
    op.create_index("host_session_host_id", "host_session", ["host_id"])


def _create_result() -> None:
    op.create_table(
        "result",
        sa.Column("id", sa.String(22), nullable=False),
        sa.Column("origin", sa.String(9), nullable=False),
        sa.Column("state", sa.String(11), nullable=False),
        sa.Column("state_reason", sa.String(500)),
        sa.Column("tier", sa.String(13), nullable=False),
        sa.Column("account_id", sa.String(22)),
        sa.Column("host_id", sa.String(22)),
        sa.Column("cell", sa.String(64)),
        sa.Column("hardware_key", sa.String(64)),
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
        sa.Column("rows_key", sa.String(64), nullable=False),
        sa.Column("failure", _JSON),
        sa.Column("seen", _JSON, nullable=False),
        sa.Column("prediction", _JSON),
        sa.Column("log", sa.LargeBinary),
        sa.Column("command", sa.Text()),
        sa.Column("remarks", sa.String(2000)),
        sa.Column("published", _JSON),
        sa.Column("confirmed", sa.Boolean, nullable=False),
        sa.Column("edit_key_hash", sa.String(64)),
        sa.Column("submission_key", sa.String(64)),
        sa.Column("measured_at", _TIME, nullable=False),
        sa.Column("created_at", _TIME, nullable=False),
        sa.CheckConstraint("origin IN ('agent', 'submitted', 'published')", name="result_origin"),
        sa.CheckConstraint("state IN ('shown', 'quarantined', 'hidden', 'deleted')", name="result_state"),
        sa.CheckConstraint("tier IN ('self-reported', 'agent-run', 'replicated')", name="result_tier"),
        sa.ForeignKeyConstraint(["account_id"], ["account.id"], name="result_account_id_fk", ondelete="SET NULL"),
        sa.ForeignKeyConstraint(["host_id"], ["host.id"], name="result_host_id_fk", ondelete="SET NULL"),
        sa.PrimaryKeyConstraint("id", name="result_pk"),
        sa.UniqueConstraint("submission_key", name="result_submission_key_unique"),
    )
    for name in ("cell", "hardware_key", "measured_at", "rows_key"):
        op.create_index(f"result_{name}", "result", [name])
    op.create_index("result_newest", "result", ["created_at", "id"])
    op.create_index("result_counted_host", "result", ["host_id", "state"])
    op.create_index("result_counted_account", "result", ["account_id", "state", "tier", "host_id"])
    for name in ("account_id", "host_id", "repo", "model_slug", "rig_slug", "tier", "origin"):
        op.create_index(f"result_by_{name}", "result", [name, "created_at", "id"])


def _create_run() -> None:
    op.create_table(
        "run",
        sa.Column("id", sa.String(22), nullable=False),
        sa.Column("validation_id", sa.String(22), nullable=False),
        sa.Column("account_id", sa.String(22), nullable=False),
        sa.Column("kind", sa.String(8), nullable=False),
        sa.Column("config_id", sa.String(64)),
        sa.Column("position", sa.Integer, nullable=False),
        sa.Column("variant", sa.String(200), nullable=False),
        sa.Column("cell", sa.String(64), nullable=False),
        sa.Column("outline", _JSON, nullable=False),
        sa.Column("prediction", _JSON, nullable=False),
        sa.Column("identity", _JSON, nullable=False),
        sa.Column("dropped", _JSON, nullable=False),
        sa.Column("changed", sa.String(500)),
        sa.Column("state", sa.String(9), nullable=False),
        sa.Column("attempt", sa.Integer, nullable=False),
        sa.Column("fence", sa.Integer, nullable=False),
        sa.Column("host_id", sa.String(22)),
        sa.Column("leased_at", _TIME),
        sa.Column("leased_until", _TIME),
        sa.Column("progress", sa.String(200)),
        sa.Column("rows", _JSON, nullable=False),
        sa.Column("failure", _JSON),
        sa.Column("report_key", sa.String(64)),
        sa.Column("result_id", sa.String(22)),
        sa.Column("previous", sa.Boolean, nullable=False),
        sa.Column("gpu_seconds", sa.Float, nullable=False),
        sa.Column("created_at", _TIME, nullable=False),
        sa.Column("started_at", _TIME),
        sa.Column("ended_at", _TIME),
        sa.CheckConstraint("kind IN ('config', 'baseline', 'step')", name="run_kind"),
        sa.CheckConstraint(
            "state IN ('queued', 'leased', 'running', 'succeeded', 'failed', 'cancelled')", name="run_state"
        ),
        sa.ForeignKeyConstraint(["account_id"], ["account.id"], name="run_account_id_fk", ondelete="CASCADE"),
        sa.ForeignKeyConstraint(["host_id"], ["host.id"], name="run_host_id_fk", ondelete="SET NULL"),
        sa.ForeignKeyConstraint(["validation_id"], ["validation.id"], name="run_validation_id_fk", ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("id", name="run_pk"),
    )
    op.create_index("run_account_id", "run", ["account_id"])
    op.create_index("run_cell", "run", ["cell"])
    op.create_index("run_ended_at", "run", ["ended_at"])
    op.create_index("run_host_id", "run", ["host_id"])
    op.create_index("run_queue", "run", ["state", "created_at"])
    op.create_index("run_result_id", "run", ["result_id"])
    op.create_index("run_validation_id", "run", ["validation_id"])


def _create_run_host() -> None:
    op.create_table(
        "run_host",
        sa.Column("run_id", sa.String(22), nullable=False),
        sa.Column("host_id", sa.String(22), nullable=False),
        sa.Column("match", sa.String(5), nullable=False),
        sa.Column("gpus", _JSON, nullable=False),
        sa.Column("engine_builds", _JSON, nullable=False),
        sa.CheckConstraint("match IN ('exact', 'near')", name="run_host_match"),
        sa.ForeignKeyConstraint(["host_id"], ["host.id"], name="run_host_host_id_fk", ondelete="CASCADE"),
        sa.ForeignKeyConstraint(["run_id"], ["run.id"], name="run_host_run_id_fk", ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("run_id", "host_id", name="run_host_pk"),
    )
    op.create_index("run_host_host_id", "run_host", ["host_id"])


def _create_rig() -> None:
    op.create_table(
        "rig",
        sa.Column("account_id", sa.String(22), nullable=False),
        sa.Column("hardware", sa.String(4000), nullable=False),
        sa.Column("saved_at", _TIME, nullable=False),
        sa.ForeignKeyConstraint(["account_id"], ["account.id"], name="rig_account_id_fk", ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("account_id", name="rig_pk"),
    )


def _create_interaction() -> None:
    op.create_table(
        "interaction",
        sa.Column("id", sa.String(120), nullable=False),
        sa.Column("account", sa.String(120), nullable=False),
        sa.Column("place", sa.String(120), nullable=False),
        sa.Column("ask", _JSON),
        sa.Column("reply", _JSON),
        sa.Column("visit", _JSON, nullable=False),
        sa.Column("created_at", _TIME, nullable=False),
        sa.Column("due_at", _TIME),
        sa.PrimaryKeyConstraint("id", name="interaction_pk"),
    )
    op.create_index("interaction_account", "interaction", ["account"])
    op.create_index("interaction_due", "interaction", ["due_at"])


def _create_result_change() -> None:
    op.create_table(
        "result_change",
        sa.Column("id", sa.String(22), nullable=False),
        sa.Column("result_id", sa.String(22), nullable=False),
        sa.Column("at", _TIME, nullable=False),
        sa.Column("what", sa.String(200), nullable=False),
        sa.Column("before", _JSON, nullable=False),
        sa.ForeignKeyConstraint(["result_id"], ["result.id"], name="result_change_result_id_fk", ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("id", name="result_change_pk"),
    )
    op.create_index("result_change_result_id", "result_change", ["result_id"])


def _create_host_proof() -> None:
    op.create_table(
        "host_proof",
        sa.Column("host_id", sa.String(22), nullable=False),
        sa.Column("cell", sa.String(64), nullable=False),
        sa.ForeignKeyConstraint(["host_id"], ["host.id"], name="host_proof_host_id_fk", ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("host_id", "cell", name="host_proof_pk"),
    )
    op.create_index("host_proof_cell", "host_proof", ["cell"])


def _create_audit() -> None:
    op.create_table(
        "audit",
        sa.Column("id", sa.String(22), nullable=False),
        sa.Column("at", _TIME, nullable=False),
        sa.Column("by", sa.String(120), nullable=False),
        sa.Column("action", sa.String(16), nullable=False),
        sa.Column("subject", sa.String(200), nullable=False),
        sa.Column("reason", sa.String(500), nullable=False),
        sa.PrimaryKeyConstraint("id", name="audit_pk"),
    )
    op.create_index("audit_at", "audit", ["at"])
    op.create_index("audit_subject", "audit", ["subject"])


def _create_abuse_report() -> None:
    op.create_table(
        "abuse_report",
        sa.Column("id", sa.String(22), nullable=False),
        sa.Column("result_id", sa.String(22), nullable=False),
        sa.Column("account_id", sa.String(22)),
        sa.Column("kind", sa.String(16), nullable=False),
        sa.Column("text", sa.String(1000), nullable=False),
        sa.Column("created_at", _TIME, nullable=False),
        sa.Column("closed_at", _TIME),
        sa.Column("closed_by", sa.String(120)),
        sa.ForeignKeyConstraint(["account_id"], ["account.id"], name="abuse_report_account_id_fk", ondelete="SET NULL"),
        sa.ForeignKeyConstraint(["result_id"], ["result.id"], name="abuse_report_result_id_fk", ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("id", name="abuse_report_pk"),
    )
    op.create_index("abuse_report_account_id", "abuse_report", ["account_id"])
    op.create_index("abuse_report_created_at", "abuse_report", ["created_at"])
    op.create_index("abuse_report_result_id", "abuse_report", ["result_id"])


def _create_calibration() -> None:
    op.create_table(
        "calibration",
        sa.Column("version", sa.String(40), nullable=False),
        sa.Column("body", sa.LargeBinary, nullable=False),
        sa.Column("errors", _JSON, nullable=False),
        sa.Column("n_results", sa.Integer, nullable=False),
        sa.Column("made_at", _TIME, nullable=False),
        sa.PrimaryKeyConstraint("version", name="calibration_pk"),
    )
    op.create_index("calibration_made_at", "calibration", ["made_at"])
