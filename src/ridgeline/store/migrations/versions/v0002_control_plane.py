"""What the control plane writes down: leases, scaling, rollouts, live versions.

Frozen as they were: a later step changes them, never this file.
"""

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"

_NUMBER = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def upgrade() -> None:
    """Make the tables."""
    op.create_table(
        "leases",
        sa.Column("name", sa.String(length=120), nullable=False),
        sa.Column("holder", sa.String(length=120), nullable=False),
        sa.Column("until_ns", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("name", name=op.f("pk_leases")),
    )
    op.create_table(
        "scale_decisions",
        sa.Column("id", _NUMBER, autoincrement=True, nullable=False),
        sa.Column("model", sa.String(length=200), nullable=False),
        sa.Column("at_ns", sa.BigInteger(), nullable=False),
        sa.Column("before", sa.Integer(), nullable=False),
        sa.Column("replicas", sa.Integer(), nullable=False),
        sa.Column("demand", sa.BigInteger()),
        sa.Column("queued", sa.BigInteger(), nullable=False),
        sa.Column("reason", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_scale_decisions")),
    )
    op.create_index(op.f("ix_scale_decisions_at_ns"), "scale_decisions", ["at_ns"])
    op.create_table(
        "rollouts",
        sa.Column("id", sa.String(length=32), nullable=False),
        sa.Column("model", sa.String(length=200), nullable=False),
        sa.Column("old", sa.Text(), nullable=False),
        sa.Column("new", sa.Text(), nullable=False),
        sa.Column("plan", sa.Text(), nullable=False),
        sa.Column("phase", sa.String(length=16), nullable=False),
        sa.Column("step", sa.Integer(), nullable=False),
        sa.Column("since_ns", sa.BigInteger(), nullable=False),
        sa.Column("began_ns", sa.BigInteger(), nullable=False),
        sa.Column("wish", sa.String(length=16), nullable=False),
        sa.Column("reason", sa.Text(), nullable=False),
        sa.Column("evidence", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_rollouts")),
    )
    op.create_index(op.f("ix_rollouts_model_began_ns"), "rollouts", ["model", "began_ns"])
    op.create_table(
        "live_versions",
        sa.Column("model", sa.String(length=200), nullable=False),
        sa.Column("version", sa.Text(), nullable=False),
        sa.Column("spec_version", sa.Text(), nullable=False),
        sa.Column("since_ns", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("model", name=op.f("pk_live_versions")),
    )
