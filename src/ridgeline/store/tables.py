"""Every table, in one place: what the migrations build and what the queries name.

Times are Unix nanoseconds. Money is in `NanoUsd`: exact, a `Decimal` in Python. Limits and other
small trees are JSON text. `tests/store` compares these with what the migrations make.
"""

from sqlalchemy import (
    BigInteger,
    Column,
    Float,
    ForeignKey,
    Index,
    Integer,
    MetaData,
    String,
    Table,
    Text,
)

from ridgeline.store.money import NanoUsd

# Names of constraints are spelled out, so that a migration can drop one on any database.
metadata = MetaData(
    naming_convention={
        "ix": "ix_%(table_name)s_%(column_0_N_name)s",
        "uq": "uq_%(table_name)s_%(column_0_N_name)s",
        "fk": "fk_%(table_name)s_%(column_0_N_name)s",
        "pk": "pk_%(table_name)s",
    }
)

#: SQLite counts rows by itself only in a column of its own INTEGER type.
_Number = BigInteger().with_variant(Integer, "sqlite")

#: Who asks: a team with limits, a budget and a share. `origin` is "spec" or "admin".
tenants = Table(
    "tenants",
    metadata,
    Column("name", String(63), primary_key=True),
    Column("priority_class", String(16), nullable=False),
    Column("weight", Float, nullable=False),
    Column("limits", Text, nullable=False),
    Column("origin", String(8), nullable=False),
    Column("created_ns", BigInteger, nullable=False),
    Column("disabled_ns", BigInteger),
)

#: Keys, of which only the SHA-256 is kept. `hint` is what a person recognises a key by.
#: `models` is a JSON list, or null for every model; `role` is "user", "viewer" or "admin".
api_keys = Table(
    "api_keys",
    metadata,
    Column("id", String(32), primary_key=True),
    Column("tenant", String(63), ForeignKey("tenants.name"), nullable=False),
    Column("digest", String(64), nullable=False, unique=True),
    Column("hint", String(16), nullable=False),
    Column("name", String(63), nullable=False),
    Column("role", String(8), nullable=False),
    Column("models", Text),
    Column("limits", Text, nullable=False),
    Column("created_ns", BigInteger, nullable=False),
    Column("expires_ns", BigInteger),
    Column("revoked_ns", BigInteger),
    Index(None, "tenant"),
)

#: Who changed what, only ever added to.
audit = Table(
    "audit",
    metadata,
    Column("id", _Number, primary_key=True, autoincrement=True),
    Column("at_ns", BigInteger, nullable=False),
    Column("actor", String(80), nullable=False),
    Column("action", String(32), nullable=False),
    Column("target", String(120), nullable=False),
    Column("detail", Text, nullable=False),
)

#: The state of the limits of one tenant or key: `subject` is "tenant:NAME" or "key:ID".
accounts = Table(
    "accounts",
    metadata,
    Column("subject", String(80), primary_key=True),
    Column("state", Text, nullable=False),
)

#: What running requests may still use. A row goes when its request is settled.
#: `ended_ns` is set where the request has ended but what it used is not known yet.
reservations = Table(
    "reservations",
    metadata,
    Column("request_id", String(64), primary_key=True),
    Column("worker", String(64), nullable=False),
    Column("tenant", String(63), nullable=False),
    Column("key_id", String(32), nullable=False),
    Column("model", String(200), nullable=False),
    Column("endpoint", String(32), nullable=False),
    Column("input_tokens", BigInteger, nullable=False),
    Column("output_tokens", BigInteger, nullable=False),
    Column("usd", NanoUsd, nullable=False),
    Column("price", Text, nullable=False),
    Column("began_ns", BigInteger, nullable=False),
    Column("replica", String(120), nullable=False, default=""),
    Column("attempts", Text, nullable=False, default="[]"),
    Column("streamed_tokens", BigInteger, nullable=False, default=0),
    Column("status", Integer, nullable=False, default=0),
    Column("ended_ns", BigInteger),
    Index(None, "worker"),
)

#: The ledger: one row for each request that used something, only ever added to.
#: `basis` says whose count it is: "usage", "replica log", "streamed" or "own count".
entries = Table(
    "entries",
    metadata,
    Column("id", _Number, primary_key=True, autoincrement=True),
    Column("request_id", String(64), nullable=False, unique=True),
    Column("tenant", String(63), nullable=False),
    Column("key_id", String(32), nullable=False),
    Column("model", String(200), nullable=False),
    Column("endpoint", String(32), nullable=False),
    Column("replica", String(120), nullable=False),
    Column("status", Integer, nullable=False),
    Column("input_tokens", BigInteger, nullable=False),
    Column("cached_tokens", BigInteger, nullable=False),
    Column("output_tokens", BigInteger, nullable=False),
    Column("usd", NanoUsd, nullable=False),
    Column("basis", String(16), nullable=False),
    Column("began_ns", BigInteger, nullable=False),
    Column("ended_ns", BigInteger, nullable=False),
    Index(None, "tenant", "began_ns"),
    Index(None, "began_ns"),
)

#: Gateway workers that live: who does not renew its lease has its reservations settled by others.
workers = Table(
    "workers",
    metadata,
    Column("id", String(64), primary_key=True),
    Column("until_ns", BigInteger, nullable=False),
    Column("detail", Text, nullable=False),
)

#: Why a request went where it went, for `ridgeline why`; old rows are deleted.
decisions = Table(
    "decisions",
    metadata,
    Column("request_id", String(64), primary_key=True),
    Column("tenant", String(63), nullable=False),
    Column("at_ns", BigInteger, nullable=False),
    Column("detail", Text, nullable=False),
    Index(None, "at_ns"),
)

#: What each replica did in each minute, in nanoseconds; the first worker to say so is believed.
replica_minutes = Table(
    "replica_minutes",
    metadata,
    Column("replica", String(120), primary_key=True),
    Column("minute", BigInteger, primary_key=True),
    Column("model", String(200), nullable=False),
    Column("usd_per_hour", NanoUsd, nullable=False),
    Column("busy_ns", BigInteger, nullable=False),
    Column("idle_ns", BigInteger, nullable=False),
    Column("loading_ns", BigInteger, nullable=False),
    Column("draining_ns", BigInteger, nullable=False),
)

#: Who acts as the controller of what; who does not renew its lease loses it.
leases = Table(
    "leases",
    metadata,
    Column("name", String(120), primary_key=True),
    Column("holder", String(120), nullable=False),
    Column("until_ns", BigInteger, nullable=False),
)

#: How many replicas a model got and why; old rows are deleted. An unknown demand is null.
scale_decisions = Table(
    "scale_decisions",
    metadata,
    Column("id", _Number, primary_key=True, autoincrement=True),
    Column("model", String(200), nullable=False),
    Column("at_ns", BigInteger, nullable=False),
    Column("before", Integer, nullable=False),
    Column("replicas", Integer, nullable=False),
    Column("demand", BigInteger),
    Column("queued", BigInteger, nullable=False),
    Column("reason", Text, nullable=False),
    Index(None, "at_ns"),
)

#: Rollouts of a model from one version to the next, one at a time for a model. Versions, `plan`
#: and `evidence` are JSON; `wish` is what an operator asks for and is not done yet.
rollouts = Table(
    "rollouts",
    metadata,
    Column("id", String(32), primary_key=True),
    Column("model", String(200), nullable=False),
    Column("old", Text, nullable=False),
    Column("new", Text, nullable=False),
    Column("plan", Text, nullable=False),
    Column("phase", String(16), nullable=False),
    Column("step", Integer, nullable=False),
    Column("since_ns", BigInteger, nullable=False),
    Column("began_ns", BigInteger, nullable=False),
    Column("wish", String(16), nullable=False),
    Column("reason", Text, nullable=False),
    Column("evidence", Text, nullable=False),
    Index(None, "model", "began_ns"),
)

#: The version that a rollout has left each model with. It counts for as long as the spec says
#: what it said then (`spec_version`): who changes the spec later means it.
live_versions = Table(
    "live_versions",
    metadata,
    Column("model", String(200), primary_key=True),
    Column("version", Text, nullable=False),
    Column("spec_version", Text, nullable=False),
    Column("since_ns", BigInteger, nullable=False),
)
