"""Clients in virtual time: those who ask whatever happens, and those who wait for an answer first.

An open loop asks at the times of a trace. A closed loop keeps so many requests in flight. A talk's
next turn comes a while after the answer to the one before it. All may leave after a while, and come
again when they were refused or have left, as `Manners` say.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from ridgeline.errors import SpecError
from ridgeline.serving.simulate.asked import Asked, End
from ridgeline.serving.simulate.talks import Talk
from ridgeline.serving.simulate.world import World
from ridgeline.timeline import NS
from ridgeline.workload import Request


@dataclass(frozen=True, slots=True)
class Manners:
    """How clients behave. None: they wait for ever.

    Whoever was refused asks again up to `retries` times, after as long as he was told. A client
    leaves when it has no token after `first_token_s`, or not the whole answer after `whole_s`; with
    `again` it asks anew a second later, which counts as a retry: what was done for it is lost.
    """

    retries: int = 0
    first_token_s: float | None = None
    whole_s: float | None = None
    again: bool = False

    def __post_init__(self) -> None:
        leaves = self.first_token_s is not None or self.whole_s is not None
        if self.again and not (leaves and self.retries):
            raise SpecError(
                "clients ask again after leaving, and they never leave or never ask twice",
                where="manners.again",
                remedy="retries of 1 or more, and first_token_s or whole_s",
            )

    @property
    def repeated(self) -> frozenset[End]:
        """After which ends it is asked again."""
        refused = frozenset({End.REFUSED, End.UNREADY})
        return refused | {End.LEFT} if self.again else refused


def regrouped(blocks: Sequence[int], tokens: int, wanted: int) -> Sequence[int]:
    """Names of blocks of `wanted` tokens for blocks of `tokens`; each names all before it too.

    Raises SpecError where the one is no multiple of the other.
    """
    if tokens == wanted:
        return blocks
    if tokens % wanted == 0:
        parts = range(tokens // wanted)
        return [block * len(parts) + part for block in blocks for part in parts]
    if wanted % tokens == 0:
        return blocks[wanted // tokens - 1 :: wanted // tokens]
    raise SpecError(
        f"blocks of {tokens} tokens in the trace make no blocks of {wanted} in the engine",
        where="trace",
        remedy=f"an engine with blocks of {tokens} tokens",
    )


class Crowd:
    """What all clients have in common: asking, leaving, asking again."""

    def __init__(self, model: str, manners: Manners | None) -> None:
        self._model = model
        self._manners = manners or Manners()
        self._repeated = self._manners.repeated
        self._number, self._stride = 0, 1
        self._again: dict[int, int] = {}
        self._world: World

    def number(self, first: int, stride: int) -> None:
        """Its requests get these numbers, so that other crowds can have those in between."""
        self._number, self._stride = first, stride

    def asked(self, request: Request, block_tokens: int) -> Asked:
        """The next request, with its prompt's full blocks as its engine has them.

        It is of the model that it names itself, else of the crowd's.
        """
        blocks: Sequence[int] = ()
        model = request.model or self._model
        if request.blocks:
            engine = self._world.model(model).engine
            whole = request.prompt_tokens // block_tokens
            blocks = regrouped(request.blocks[:whole], block_tokens, engine.block_tokens)
        asked = Asked(
            self._number, self, model, request.prompt_tokens, request.output_tokens, blocks,
            request.tenant, request.session,
        )  # fmt: skip
        self._number += self._stride
        return asked

    def ask(self, asked: Asked) -> None:
        """Now."""
        world, manners = self._world, self._manners
        world.arrive(asked)
        if asked.end is not End.OPEN:
            return
        now_ns = world.timeline.now_ns
        if manners.first_token_s is not None:
            at_ns = now_ns + round(manners.first_token_s * NS)
            world.expire(at_ns, asked, self._without_token)
        if manners.whole_s is not None:
            world.expire(now_ns + round(manners.whole_s * NS), asked, self._too_slow)

    def ended(self, asked: Asked) -> None:
        """It has ended; perhaps it is asked again."""
        tries = self._again.get(asked.number, 0)
        if asked.end in self._repeated and tries < self._manners.retries:
            self._again[asked.number] = tries + 1
            self._world.comes_again(asked)
            fresh = Asked(
                asked.number, asked.client, asked.model, asked.prompt_tokens,
                asked.output_tokens, asked.blocks, asked.tenant, asked.session, asked.at_ns,
                adapter=asked.adapter,
            )  # fmt: skip
            at_ns = self._world.timeline.now_ns + round(max(asked.retry_after_s, 1.0) * NS)
            self._world.at(at_ns, asked.number, self._ask_again, fresh)
            return
        self._again.pop(asked.number, None)
        self.after(asked)
        self._world.ended(asked)

    def after(self, asked: Asked) -> None:
        """What its client does now; it may ask for something else."""

    def _ask_again(self, asked: Asked) -> None:
        self._world.expected -= 1
        self.ask(asked)

    def _without_token(self, asked: Asked) -> None:
        if asked.first_ns < 0:
            waited_s = self._manners.first_token_s
            self._world.leave(asked, f"no token in {waited_s:g} s")

    def _too_slow(self, asked: Asked) -> None:
        self._world.leave(asked, f"no whole answer in {self._manners.whole_s:g} s")


class OpenLoop(Crowd):
    """Requests at their times, whatever becomes of them; their blocks hold `block_tokens` each."""

    def __init__(
        self,
        requests: Iterable[Request],
        model: str,
        *,
        block_tokens: int = 0,
        manners: Manners | None = None,
    ) -> None:
        super().__init__(model, manners)
        self._requests = iter(requests)
        self._block_tokens = block_tokens

    def begin(self, world: World) -> None:
        """The first request is put down; each puts down the next."""
        self._world = world
        world.expected += 1
        self._next()

    def _next(self) -> None:
        request = next(self._requests, None)
        if request is None:
            self._world.expected -= 1
            return
        asked = self.asked(request, self._block_tokens)
        self._world.at(round(request.at_s * NS), asked.number, self._come, asked)

    def _come(self, asked: Asked) -> None:
        self._next()  # first, so that the world does not end with this one
        self.ask(asked)


class ClosedLoop(Crowd):
    """So many clients, each with one request in flight; the next comes `think_s` after its end."""

    def __init__(
        self,
        requests: Iterable[Request],
        model: str,
        clients: int,
        *,
        think_s: float = 0.0,
        block_tokens: int = 0,
        manners: Manners | None = None,
    ) -> None:
        super().__init__(model, manners)
        self._requests = iter(requests)
        self._block_tokens = block_tokens
        self._clients = clients
        self._think_ns = round(think_s * NS)

    def begin(self, world: World) -> None:
        """All clients ask at once."""
        self._world = world
        for _ in range(self._clients):
            self._next(0)

    def after(self, asked: Asked) -> None:
        """Its client asks for the next one."""
        self._next(asked.done_ns + self._think_ns)

    def _next(self, at_ns: int) -> None:
        request = next(self._requests, None)
        if request is None:
            return
        asked = self.asked(request, self._block_tokens)
        self._world.expected += 1
        self._world.at(at_ns, asked.number, self._ask_again, asked)


class Talkers(Crowd):
    """Conversations: a turn is asked a while after the answer to the one before it.

    A talk ends where a turn is not answered.
    """

    def __init__(self, talks: Iterable[Talk], model: str, manners: Manners | None = None) -> None:
        super().__init__(model, manners)
        self._talks = list(talks)
        self._turns: dict[int, tuple[Talk, int]] = {}

    def begin(self, world: World) -> None:
        """The first turn of each talk is put down."""
        self._world = world
        for talk in self._talks:
            self._turn(talk, 0, round(talk.at_s * NS))

    def after(self, asked: Asked) -> None:
        """The talk goes on."""
        talk, turn = self._turns.pop(asked.number)
        if asked.end is End.ANSWERED and turn + 1 < len(talk.turns):
            self._turn(talk, turn + 1, asked.done_ns + round(talk.think_s * NS))

    def _turn(self, talk: Talk, turn: int, at_ns: int) -> None:
        said = talk.turns[turn]
        asked = Asked(
            self._number, self, self._model, said.prompt_tokens, said.output_tokens, said.stream,
            talk.tenant, talk.name,
        )  # fmt: skip
        self._turns[self._number] = talk, turn
        self._number += self._stride
        self._world.expected += 1
        self._world.at(at_ns, asked.number, self._ask_again, asked)


class Several:
    """Crowds that ask at the same time, each as if the others were not there."""

    def __init__(self, crowds: Sequence[OpenLoop | ClosedLoop | Talkers]) -> None:
        self._crowds = crowds

    def begin(self, world: World) -> None:
        """All of them begin."""
        for place, crowd in enumerate(self._crowds):
            crowd.number(place, len(self._crowds))
        for crowd in self._crowds:
            crowd.begin(world)
