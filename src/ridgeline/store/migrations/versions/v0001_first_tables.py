"""The first tables: tenants, keys, audit, and the ledger with what it needs.

Frozen as they were: a later step changes them, never this file.
"""

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None

_NUMBER = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def upgrade() -> None:
    """Make every table."""
    _who_asks()
    _ledger()
    _what_runs()


def _who_asks() -> None:
    op.create_table(
        "tenants",
        sa.Column("name", sa.String(length=63), nullable=False),
        sa.Column("priority_class", sa.String(length=16), nullable=False),
        sa.Column("weight", sa.Float(), nullable=False),
        sa.Column("limits", sa.Text(), nullable=False),
        sa.Column("origin", sa.String(length=8), nullable=False),
        sa.Column("created_ns", sa.BigInteger(), nullable=False),
        sa.Column("disabled_ns", sa.BigInteger()),
        sa.PrimaryKeyConstraint("name", name=op.f("pk_tenants")),
    )
    op.create_table(
        "api_keys",
        sa.Column("id", sa.String(length=32), nullable=False),
        sa.Column("tenant", sa.String(length=63), nullable=False),
        sa.Column("digest", sa.String(length=64), nullable=False),
        sa.Column("hint", sa.String(length=16), nullable=False),
        sa.Column("name", sa.String(length=63), nullable=False),
        sa.Column("role", sa.String(length=8), nullable=False),
        sa.Column("models", sa.Text()),
        sa.Column("limits", sa.Text(), nullable=False),
        sa.Column("created_ns", sa.BigInteger(), nullable=False),
        sa.Column("expires_ns", sa.BigInteger()),
        sa.Column("revoked_ns", sa.BigInteger()),
        sa.ForeignKeyConstraint(["tenant"], ["tenants.name"], name=op.f("fk_api_keys_tenant")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_api_keys")),
        sa.UniqueConstraint("digest", name=op.f("uq_api_keys_digest")),
    )
    op.create_index(op.f("ix_api_keys_tenant"), "api_keys", ["tenant"])
    op.create_table(
        "audit",
        sa.Column("id", _NUMBER, autoincrement=True, nullable=False),
        sa.Column("at_ns", sa.BigInteger(), nullable=False),
        sa.Column("actor", sa.String(length=80), nullable=False),
        sa.Column("action", sa.String(length=32), nullable=False),
        sa.Column("target", sa.String(length=120), nullable=False),
        sa.Column("detail", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_audit")),
    )


def _ledger() -> None:
    op.create_table(
        "accounts",
        sa.Column("subject", sa.String(length=80), nullable=False),
        sa.Column("state", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("subject", name=op.f("pk_accounts")),
    )
    op.create_table(
        "reservations",
        sa.Column("request_id", sa.String(length=64), nullable=False),
        sa.Column("worker", sa.String(length=64), nullable=False),
        sa.Column("tenant", sa.String(length=63), nullable=False),
        sa.Column("key_id", sa.String(length=32), nullable=False),
        sa.Column("model", sa.String(length=200), nullable=False),
        sa.Column("endpoint", sa.String(length=32), nullable=False),
        sa.Column("input_tokens", sa.BigInteger(), nullable=False),
        sa.Column("output_tokens", sa.BigInteger(), nullable=False),
        sa.Column("usd", sa.BigInteger(), nullable=False),
        sa.Column("price", sa.Text(), nullable=False),
        sa.Column("began_ns", sa.BigInteger(), nullable=False),
        sa.Column("replica", sa.String(length=120), nullable=False),
        sa.Column("attempts", sa.Text(), nullable=False),
        sa.Column("streamed_tokens", sa.BigInteger(), nullable=False),
        sa.Column("status", sa.Integer(), nullable=False),
        sa.Column("ended_ns", sa.BigInteger()),
        sa.PrimaryKeyConstraint("request_id", name=op.f("pk_reservations")),
    )
    op.create_index(op.f("ix_reservations_worker"), "reservations", ["worker"])
    op.create_table(
        "entries",
        sa.Column("id", _NUMBER, autoincrement=True, nullable=False),
        sa.Column("request_id", sa.String(length=64), nullable=False),
        sa.Column("tenant", sa.String(length=63), nullable=False),
        sa.Column("key_id", sa.String(length=32), nullable=False),
        sa.Column("model", sa.String(length=200), nullable=False),
        sa.Column("endpoint", sa.String(length=32), nullable=False),
        sa.Column("replica", sa.String(length=120), nullable=False),
        sa.Column("status", sa.Integer(), nullable=False),
        sa.Column("input_tokens", sa.BigInteger(), nullable=False),
        sa.Column("cached_tokens", sa.BigInteger(), nullable=False),
        sa.Column("output_tokens", sa.BigInteger(), nullable=False),
        sa.Column("usd", sa.BigInteger(), nullable=False),
        sa.Column("basis", sa.String(length=16), nullable=False),
        sa.Column("began_ns", sa.BigInteger(), nullable=False),
        sa.Column("ended_ns", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_entries")),
        sa.UniqueConstraint("request_id", name=op.f("uq_entries_request_id")),
    )
    op.create_index(op.f("ix_entries_began_ns"), "entries", ["began_ns"])
    op.create_index(op.f("ix_entries_tenant_began_ns"), "entries", ["tenant", "began_ns"])


def _what_runs() -> None:
    op.create_table(
        "workers",
        sa.Column("id", sa.String(length=64), nullable=False),
        sa.Column("until_ns", sa.BigInteger(), nullable=False),
        sa.Column("detail", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_workers")),
    )
    op.create_table(
        "decisions",
        sa.Column("request_id", sa.String(length=64), nullable=False),
        sa.Column("tenant", sa.String(length=63), nullable=False),
        sa.Column("at_ns", sa.BigInteger(), nullable=False),
        sa.Column("detail", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("request_id", name=op.f("pk_decisions")),
    )
    op.create_index(op.f("ix_decisions_at_ns"), "decisions", ["at_ns"])
    op.create_table(
        "replica_minutes",
        sa.Column("replica", sa.String(length=120), nullable=False),
        sa.Column("minute", sa.BigInteger(), nullable=False),
        sa.Column("model", sa.String(length=200), nullable=False),
        sa.Column("usd_per_hour", sa.BigInteger(), nullable=False),
        sa.Column("busy_ns", sa.BigInteger(), nullable=False),
        sa.Column("idle_ns", sa.BigInteger(), nullable=False),
        sa.Column("loading_ns", sa.BigInteger(), nullable=False),
        sa.Column("draining_ns", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("replica", "minute", name=op.f("pk_replica_minutes")),
    )
