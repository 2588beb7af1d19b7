"""Rollouts in the store: what the operator asks for, where each is, and which version a model has.

The command line writes wishes, the controller alone moves a rollout on. One statement moves it and
one more says which version is live, in the same transaction, so a kill leaves both or neither.
"""

import json
import secrets
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from sqlalchemy import Connection, Engine, delete, insert, select, update

from ridgeline.errors import SpecError
from ridgeline.serving.control.versions import Version, read_version
from ridgeline.serving.policy.gate import Criteria
from ridgeline.serving.policy.rollout import Phase, Plan, Rollout
from ridgeline.store.database import explained
from ridgeline.store.migrate import lock
from ridgeline.store.tables import live_versions, rollouts

_OVER = (Phase.DONE.value, Phase.BACK.value)
_WISHES = ("promote", "abort")


@dataclass(frozen=True, slots=True)
class Kept:
    """A rollout as it is on record. `evidence` is what its gate last said."""

    rollout: Rollout
    old: Version
    new: Version
    plan: Plan
    criteria: Criteria
    wish: str
    began_ns: int
    evidence: Mapping[str, Any]

    def told(self) -> dict[str, Any]:
        """As plain values, for people and other programs."""
        rollout = self.rollout
        return {
            "id": rollout.id,
            "model": rollout.model,
            "phase": rollout.phase.value,
            "step": rollout.step,
            "steps": list(self.plan.steps),
            "since_ns": rollout.since_ns,
            "began_ns": self.began_ns,
            "reason": rollout.reason,
            "wish": self.wish,
            "old": {"id": self.old.id, "model": self.old.model, "engine": dict(self.old.engine)},
            "new": {"id": self.new.id, "model": self.new.model, "engine": dict(self.new.engine)},
            "evidence": dict(self.evidence),
        }


class RolloutLog:
    """The rollouts of a platform."""

    def __init__(self, store: Engine) -> None:
        self._store = store

    def start(self, model: str, old: Version, new: Version, plan: Plan, criteria: Criteria) -> Kept:
        """Ask for a rollout. SpecError where one of the model still goes on, StoreError."""
        if old.id == new.id:
            raise SpecError(
                f"{model} has that version already", where="rollout", remedy="name another one"
            )
        now_ns = time.time_ns()
        row = {
            "id": f"ro-{secrets.token_hex(4)}",
            "model": model,
            "old": old.written(),
            "new": new.written(),
            "plan": json.dumps({**asdict(plan), "criteria": asdict(criteria)}),
            "phase": Phase.CHECKING.value,
            "step": 0,
            "since_ns": now_ns,
            "began_ns": now_ns,
            "wish": "",
            "reason": "asked for",
            "evidence": "{}",
        }
        with explained(self._store), self._store.begin() as connection:
            lock(connection)
            going_on = _going_on(connection, model)
            if going_on is not None:
                raise SpecError(
                    f"rollout {going_on} of {model} goes on",
                    where="rollout",
                    remedy=f"ridgeline rollout abort {model} SPEC, or wait for its end",
                )
            connection.execute(insert(rollouts).values(row))
        return self.latest(model)[0]

    def wish(self, model: str, wish: str) -> str:
        """Ask for the end of the one that goes on, either way; its id. SpecError, StoreError."""
        assert wish in _WISHES, wish
        with explained(self._store), self._store.begin() as connection:
            lock(connection)
            going_on = _going_on(connection, model)
            if going_on is None:
                raise SpecError(
                    f"no rollout of {model} goes on",
                    where="rollout",
                    remedy=f"ridgeline rollout status {model} SPEC",
                )
            wanted = update(rollouts).where(rollouts.c.id == going_on).values(wish=wish)
            connection.execute(wanted)
        return str(going_on)

    def going_on(self) -> list[Kept]:
        """Those that are not over, oldest first. Raises StoreError."""
        query = select(rollouts).where(rollouts.c.phase.not_in(_OVER)).order_by(rollouts.c.began_ns)
        with explained(self._store), self._store.connect() as connection:
            return [_kept(dict(row)) for row in connection.execute(query).mappings()]

    def latest(self, model: str | None = None, most: int = 20) -> list[Kept]:
        """The last rollouts, newest first. Raises StoreError."""
        query = select(rollouts).order_by(rollouts.c.began_ns.desc()).limit(most)
        if model is not None:
            query = query.where(rollouts.c.model == model)
        with explained(self._store), self._store.connect() as connection:
            return [_kept(dict(row)) for row in connection.execute(query).mappings()]

    def moved(
        self, kept: Kept, rollout: Rollout, spec: Version, evidence: Mapping[str, Any]
    ) -> None:
        """The controller has moved it on, or learnt more. Raises StoreError.

        `spec` is the version that the model's spec names.
        """
        told = {
            "phase": rollout.phase.value,
            "step": rollout.step,
            "since_ns": rollout.since_ns,
            "reason": rollout.reason,
            "evidence": json.dumps(dict(evidence)),
        }
        with explained(self._store), self._store.begin() as connection:
            connection.execute(update(rollouts).where(rollouts.c.id == rollout.id).values(told))
            if rollout.phase is kept.rollout.phase:
                return
            # The wish is fulfilled; one that came meanwhile is another.
            same = (rollouts.c.id == rollout.id) & (rollouts.c.wish == kept.wish)
            connection.execute(update(rollouts).where(same).values(wish=""))
            if rollout.phase in (Phase.KEEPING, Phase.BACK):
                version = kept.new if rollout.phase is Phase.KEEPING else kept.old
                connection.execute(
                    delete(live_versions).where(live_versions.c.model == rollout.model)
                )
                row = {
                    "model": rollout.model,
                    "version": version.written(),
                    "spec_version": spec.written(),
                    "since_ns": rollout.since_ns,
                }
                connection.execute(insert(live_versions).values(row))

    def live(self, model: str, spec: Version) -> Version:
        """The version that a model's requests go to, where its spec names `spec`.

        Raises StoreError.
        """
        query = select(live_versions.c.version).where(
            live_versions.c.model == model, live_versions.c.spec_version == spec.written()
        )
        with explained(self._store), self._store.connect() as connection:
            text = connection.execute(query).scalar()
        return read_version(text) if text else spec


def _going_on(connection: Connection, model: str) -> str | None:
    query = select(rollouts.c.id).where(rollouts.c.model == model, rollouts.c.phase.not_in(_OVER))
    found = connection.execute(query).scalar()
    return None if found is None else str(found)


def _kept(row: Mapping[str, Any]) -> Kept:
    old, new = read_version(row["old"]), read_version(row["new"])
    told = json.loads(row["plan"])
    criteria = Criteria(**told.pop("criteria"))
    return Kept(
        Rollout(
            row["id"],
            row["model"],
            old.id,
            new.id,
            Phase(row["phase"]),
            row["step"],
            row["since_ns"],
            row["reason"],
        ),
        old,
        new,
        Plan(**{**told, "steps": tuple(told["steps"])}),
        criteria,
        row["wish"],
        row["began_ns"],
        json.loads(row["evidence"]),
    )
