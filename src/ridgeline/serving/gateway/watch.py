"""Looks at one replica for as long as it is there: is it ready, what does it serve, how full is it.

What is seen becomes a `Sign`, of which `policy.health` makes a state; a replica is ready only after
it really gave a token.
"""

import asyncio
import time
from collections.abc import Callable

from ridgeline.serving.gateway.config import ANY, GatewayConfig
from ridgeline.serving.gateway.live_replica import LiveReplica
from ridgeline.serving.gateway.probe import Probe, ProbeError
from ridgeline.serving.policy.health import Sign
from ridgeline.serving.policy.states import State

BLOCK_TOKENS = 16  # about what a block of the prefix index is (`prompt_blocks`)
MODELS_EVERY_S = 30.0  # a ready replica's list of models changes seldom (adapters)


class Watch:
    """One replica's. `judge` takes what was seen, `resize` how many blocks its cache holds."""

    def __init__(
        self,
        config: GatewayConfig,
        replica: LiveReplica,
        probe: Probe,
        judge: Callable[[LiveReplica, Sign], None],
        resize: Callable[[str, int], None],
    ) -> None:
        self._config = config
        self._replica = replica
        self._probe = probe
        self._judge = judge
        self._resize = resize

    async def run(self) -> None:
        """Look for ever."""
        replica, probe = self._replica, self._probe
        models_ns = 0
        while True:
            sign = await probe.ready()
            was_ready = replica.view.state is State.READY
            if not was_ready:
                replica.note = probe.said
            stale = time.monotonic_ns() - models_ns > MODELS_EVERY_S * 1e9
            if sign is Sign.READY and (stale or not was_ready):
                sign = await self._learn_models()
                models_ns = time.monotonic_ns()
            if sign is Sign.READY and not was_ready:
                sign = await self._first_token()
            if sign in (Sign.READY, Sign.FIRST_TOKEN):
                await self._learn_load()
            self._judge(replica, sign)
            ready = replica.view.state is State.READY
            if not was_ready:
                replica.at(replica.note or replica.view.state.value, time.monotonic_ns())
            # Whoever said yes and gave no token is not asked for another ten times a second.
            often = not ready and sign is not Sign.READY
            await asyncio.sleep(
                self._config.probe_starting_s if often else self._config.probe_every_s
            )

    async def _learn_models(self) -> Sign:
        """What it serves, under the clients' names; not ready where that is not its model."""
        replica, probe = self._replica, self._probe
        try:
            entries = {entry["id"]: entry for entry in await probe.models()}
        except ProbeError as error:
            replica.note = str(error)
            return Sign.NOT_READY
        wanted = replica.address.model
        if wanted == ANY:
            replica.names = {name: name for name in entries}
        elif wanted in entries:
            replica.names = {wanted: wanted}
        elif len(entries) == 1:
            replica.names = {wanted: next(iter(entries))}
        else:
            replica.note = f"does not serve {wanted}, but {', '.join(sorted(entries)) or 'nothing'}"
            return Sign.NOT_READY
        replica.note = ""
        replica.entries = {
            name: {"object": "model", "created": 0, "owned_by": "", **entries[theirs], "id": name}
            for name, theirs in replica.names.items()
        }
        replica.view.models = frozenset(replica.names)
        replica.view.slots = self._config.model(next(iter(sorted(replica.names)), ANY)).slots
        return Sign.READY

    async def _first_token(self) -> Sign:
        """Whether it really answers; a health page alone has said so too early before."""
        replica, probe = self._replica, self._probe
        name = next(iter(replica.names.values()), "")
        problem = await probe.first_token(name, self._config.timeouts.first_token_s)
        replica.note = problem
        return Sign.READY if problem else Sign.FIRST_TOKEN

    async def _learn_load(self) -> None:
        """How full it is. Our own requests are in its numbers, so only the rest is others'."""
        replica = self._replica
        running_before = replica.view.running
        replica.load = load = await self._probe.load()
        ours = max(running_before, replica.view.running)  # both ends of the look: never too many
        replica.view.others = max(0, (load.running or 0) + (load.waiting or 0) - ours)
        replica.view.kv_usage = load.kv_usage
        replica.view.waiting = load.waiting
        replica.view.adapters = load.adapters
        if load.kv_tokens:
            self._resize(replica.id, load.kv_tokens // BLOCK_TOKENS)
        replica.view.reported_ns = time.monotonic_ns()
