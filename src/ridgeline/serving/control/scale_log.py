"""What the autoscaler did and why, in the store; and the lease that lets one controller act."""

import asyncio
import logging
import time
from collections.abc import Sequence
from contextlib import suppress
from typing import NamedTuple

from sqlalchemy import Engine, delete, insert, select, update
from sqlalchemy.exc import IntegrityError

from ridgeline.errors import StoreError
from ridgeline.serving.policy.scale import Look, Scaled
from ridgeline.store.database import explained
from ridgeline.store.tables import leases, scale_decisions

#: How long decisions are kept.
KEPT_S = 7 * 24 * 3600
_NS = 1_000_000_000
_LOG = logging.getLogger(__name__)


class Written(NamedTuple):
    """One decision as it is on record. Times are Unix nanoseconds; `demand` may be unknown."""

    model: str
    at_ns: int
    before: int
    replicas: int
    demand: int | None
    reason: str


class ScaleLog:
    """The decisions of a platform's autoscalers."""

    def __init__(self, store: Engine) -> None:
        self._store = store

    def wrote(self, model: str, before: int, decided: Scaled, look: Look) -> None:
        """A number of replicas has changed. Raises StoreError."""
        now_ns = time.time_ns()
        row = {
            "model": model,
            "at_ns": now_ns,
            "before": before,
            "replicas": decided.replicas,
            "demand": decided.demand,
            "queued": look.queued,
            "reason": decided.reason,
        }
        with explained(self._store), self._store.begin() as connection:
            connection.execute(insert(scale_decisions).values(row))
            old = scale_decisions.c.at_ns < now_ns - KEPT_S * _NS
            connection.execute(delete(scale_decisions).where(old))

    def latest(self, model: str | None = None, most: int = 50) -> Sequence[Written]:
        """The last decisions, newest first. Raises StoreError."""
        table = scale_decisions.c
        columns = (
            table.model, table.at_ns, table.before, table.replicas, table.demand, table.reason
        )  # fmt: skip
        query = select(*columns).order_by(table.id.desc()).limit(most)
        if model is not None:
            query = query.where(table.model == model)
        with explained(self._store), self._store.connect() as connection:
            return [Written(*row) for row in connection.execute(query)]


#: How often a lease is renewed: several times before it ends.
_RENEW_S = 3.0


class Lease:
    """That this process, and no other, acts as `name`. It ends `lasts_s` after the last `renew`."""

    def __init__(self, store: Engine, name: str, holder: str, lasts_s: float = 10.0) -> None:
        self.store = store
        self._name = name
        self._holder = holder
        self._lasts_ns = round(lasts_s * _NS)
        self._until_ns = 0

    @property
    def held(self) -> bool:
        """Whether it is ours now. By our own clock: who cannot reach the store stops acting."""
        return time.monotonic_ns() < self._until_ns

    def renew(self) -> bool:
        """Take it where it is free or ours already. Raises StoreError."""
        now_ns, asked_ns = time.time_ns(), time.monotonic_ns()
        table = leases.c
        mine = {"holder": self._holder, "until_ns": now_ns + self._lasts_ns}
        free = (table.holder == self._holder) | (table.until_ns < now_ns)
        with explained(self.store):
            try:
                with self.store.begin() as connection:
                    taken = connection.execute(
                        update(leases).where(table.name == self._name, free).values(mine)
                    ).rowcount
                    if not taken:
                        connection.execute(insert(leases).values(name=self._name, **mine))
            except IntegrityError:  # somebody else's
                self._until_ns = 0
                return False
        self._until_ns = asked_ns + self._lasts_ns
        return True

    def give_up(self) -> None:
        """Somebody else may have it at once. Raises StoreError."""
        self._until_ns = 0
        ours = (leases.c.name == self._name) & (leases.c.holder == self._holder)
        with explained(self.store), self.store.begin() as connection:
            connection.execute(delete(leases).where(ours))


async def keep(lease: Lease) -> None:
    """Hold a lease, or take it as soon as it is free; until cancelled, and then it is free."""
    try:
        while True:
            try:
                await asyncio.to_thread(lease.renew)
            except StoreError as error:
                _LOG.error("the lease cannot be renewed: %s", error)
            await asyncio.sleep(_RENEW_S)
    finally:
        with suppress(StoreError):
            lease.give_up()
