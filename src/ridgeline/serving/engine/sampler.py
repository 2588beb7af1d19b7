"""From logits to tokens: every rule of `Sampling`, in one order, for each row by itself.

Called by `loop` once a step with a row for each sequence that gets a token. What a row yields
depends on its logits and its state alone, never on the rest of the batch. The order of rules is
vLLM's:

    log-probabilities of the raw logits          if asked for
    logit bias
    repetition, frequency, presence penalty
    min_tokens (no end yet), then the grammar    masks; the grammar wins
    temperature 0: the largest, or else
    temperature, min-p, top-k, top-p, draw       in C++, or in `draw`
"""

import math
import os
from collections.abc import Callable, Collection, Sequence

import msgspec
import numpy as np
from numpy.typing import NDArray

from ridgeline.kernels.draws import Drawn, Draws, Row
from ridgeline.serving.engine import draw
from ridgeline.serving.engine.constraint import Matcher
from ridgeline.serving.engine.messages import Logprob, Sampling

_GREEDY_BELOW = 1e-5  # a temperature that float32 cannot divide by; vLLM draws the line there too
_NEVER = -9999.0  # instead of -inf, which JSON cannot say; OpenAI's number


class Chosen(msgspec.Struct, frozen=True, gc=False):
    """One row's token. With `error`, there is none and its continuation cannot go on."""

    token: int
    logprob: Logprob | None = None
    error: str = ""


class _Tally:
    """Which tokens were seen, and how often in the output, as arrays that grow."""

    def __init__(self, prompt_ids: Sequence[int]) -> None:
        seen = np.unique(np.asarray(prompt_ids, np.intp))
        self._size = len(seen)
        self._ids = np.resize(seen, 2 * self._size + 64)
        self._counts = np.zeros(len(self._ids), np.float32)
        self._at = {token: at for at, token in enumerate(seen.tolist())}

    def add(self, token: int) -> None:
        at = self._at.setdefault(token, self._size)
        if at == self._size:
            self._size += 1
            if at == len(self._ids):
                self._ids = np.resize(self._ids, 2 * at)
                self._counts = np.append(self._counts, np.zeros(at, np.float32))
            self._ids[at] = token
        self._counts[at] += 1

    def penalise(self, logits_V: draw.Floats, rules: Sampling) -> None:
        """HF's repetition penalty on prompt and output, OpenAI's two on the output."""
        ids = self._ids[: self._size]
        counts = self._counts[: self._size]
        seen = logits_V[ids]
        repetition = np.float32(rules.repetition_penalty)
        seen = np.where(seen > 0, seen / repetition, seen * repetition)
        seen -= np.float32(rules.frequency_penalty) * counts
        seen -= np.float32(rules.presence_penalty) * (counts > 0)
        logits_V[ids] = seen


class State:
    """One continuation as the sampler knows it; `Sampler.open` makes it, `sample` moves it on.

    `position` is the number of tokens chosen so far. It stays valid while its sequence is
    preempted and computed again.
    """

    __slots__ = (
        "_draw", "_ruled", "bias_ids", "biases", "ends", "key", "matcher", "position", "sampling",
        "tally",
    )  # fmt: skip

    def __init__(
        self,
        sampling: Sampling,
        key: int,
        *,
        matcher: Matcher | None,
        tally: _Tally | None,
        ends: draw.Ids,
    ) -> None:
        self.sampling = sampling
        self.key = key
        self.matcher = matcher
        self.tally = tally
        self.ends = ends
        self.position = 0
        self.bias_ids = np.array(list(sampling.logit_bias), np.intp)
        self.biases = np.array(list(sampling.logit_bias.values()), np.float32)
        self._ruled = bool(sampling.logit_bias) or tally is not None or matcher is not None
        self._draw = _rules_of_draw(sampling)

    @property
    def complete(self) -> bool:
        """Whether its grammar lets nothing but an end follow: it may stop here without one."""
        return self.matcher is not None and self.matcher.finished

    @property
    def must_go_on(self) -> bool:
        """Whether it has not reached its `min_tokens` yet."""
        return self.position < self.sampling.min_tokens

    @property
    def changes_logits(self) -> bool:
        """Whether any rule comes before the temperature."""
        return self._ruled or self.must_go_on

    def row(self, at: int, adjusted: int = -1) -> Row:
        """What its next token is drawn by, from logits `at`, or from adjusted ones."""
        greedy = self._draw[0] == 0
        chance = 0.0 if greedy else draw.uniform(self.key, self.position)
        return Row(at, adjusted, chance, *self._draw)

    def accept(self, token: int) -> None:
        """Count a chosen token. Raises ValueError where its grammar gives up."""
        self.position += 1
        if self.tally is not None:
            self.tally.add(token)
        if self.matcher is not None:
            self.matcher.accept(token)


def fresh_seed() -> int:
    """A seed for a request that brings none, from the operating system."""
    return int.from_bytes(os.urandom(8), "little")


class Sampler:
    """Chooses tokens for one model; keeps nothing between steps but scratch rows.

    `eos_ids` are what `min_tokens` forbids, beside a request's stop tokens. `draws` does what
    comes after the penalties and masks: without any, `draw`. `seeds` is asked once for each
    continuation without a seed.
    """

    def __init__(
        self,
        vocab_size: int,
        eos_ids: Collection[int],
        *,
        draws: Draws | None = None,
        seeds: Callable[[], int] = fresh_seed,
    ) -> None:
        self._vocab_size = vocab_size
        self._eos_ids = frozenset(eos_ids)
        self._seeds = seeds
        self._draws = draws or draw.PortableDraws(vocab_size)
        self._adjusted_AV = np.empty((0, vocab_size), np.float32)

    def open(
        self,
        sampling: Sampling,
        prompt_ids: Sequence[int],
        index: int,
        matcher: Matcher | None = None,
    ) -> State:
        """The state of continuation `index` before its first token.

        Raises ValueError for a biased or, where penalties need it, a prompt token outside the
        vocabulary.
        """
        seed = self._seeds() if sampling.seed is None else sampling.seed
        self._check_ids(sampling.logit_bias, "logit_bias")
        tally = None
        if _has_penalties(sampling):
            self._check_ids(prompt_ids, "prompt")
            tally = _Tally(prompt_ids)
        ends = self._eos_ids.union(sampling.stop_token_ids) if sampling.min_tokens else ()
        known = [end for end in ends if 0 <= end < self._vocab_size]
        return State(
            sampling,
            draw.stream_key(seed, index),
            matcher=matcher,
            tally=tally,
            ends=np.array(known, np.intp),
        )

    def sample(self, logits_RV: draw.Floats, states: Sequence[State]) -> list[Chosen]:
        """One token for each row, in order; `logits_RV` is float32 and left as it was.

        A row that is not finite, or whose grammar fails, gets a `Chosen` with an error; the
        other rows are not touched by that. A state may have several rows, one after the other.
        """
        assert logits_RV.dtype == np.float32, f"logits are {logits_RV.dtype}, not float32"
        assert logits_RV.shape == (len(states), self._vocab_size), f"logits are {logits_RV.shape}"
        if len(set(map(id, states))) < len(states):
            return [
                self.sample(logits_RV[at : at + 1], [state])[0] for at, state in enumerate(states)
            ]
        rows: list[Row] = []
        failed: dict[int, Chosen] = {}
        changes = [state.changes_logits for state in states]
        self._make_room(sum(changes))
        adjusted = 0
        for at, state in enumerate(states):
            if not changes[at]:
                rows.append(state.row(at))
                continue
            try:
                self._adjust(logits_RV[at], state, self._adjusted_AV[adjusted])
            except ValueError as error:
                failed[at] = Chosen(-1, error=str(error))
                continue
            rows.append(state.row(at, adjusted))
            adjusted += 1
        drawn = iter(self._draws.draw(logits_RV, self._adjusted_AV, rows))
        return [
            failed[at] if at in failed else self._chosen(next(drawn), logits_RV, at, state)
            for at, state in enumerate(states)
        ]

    def _make_room(self, adjusted: int) -> None:
        if adjusted > len(self._adjusted_AV):
            self._adjusted_AV = np.empty((adjusted, self._vocab_size), np.float32)

    def _chosen(self, drawn: Drawn, logits_RV: draw.Floats, at: int, state: State) -> Chosen:
        if drawn.token < 0:
            if state.changes_logits and drawn.peak == -np.inf:
                return Chosen(-1, error="the model finds every allowed token impossible")
            return Chosen(-1, error=f"the model's largest logit is {drawn.peak}")
        try:
            state.accept(drawn.token)
        except ValueError as error:
            return Chosen(-1, error=str(error))
        if state.sampling.logprobs is None:
            return Chosen(drawn.token)
        return Chosen(drawn.token, _logprob(drawn, logits_RV[at]))

    def _adjust(self, logits_V: draw.Floats, state: State, adjusted_V: draw.Floats) -> None:
        """A copy with the rules before temperature applied. Raises ValueError."""
        peak = float(logits_V.max())
        if not math.isfinite(peak):
            raise ValueError(f"the model's largest logit is {peak}")
        adjusted_V[:] = logits_V
        if len(state.biases):
            adjusted_V[state.bias_ids] += state.biases
        if state.tally is not None:
            state.tally.penalise(adjusted_V, state.sampling)
        if state.matcher is not None:
            np.copyto(adjusted_V, -np.inf, where=_forbidden(state.matcher, state))
        elif state.must_go_on:
            adjusted_V[state.ends] = -np.inf

    def _check_ids(self, ids: Collection[int], what: str) -> None:
        if ids and not (min(ids) >= 0 and max(ids) < self._vocab_size):
            raise ValueError(f"{what} has a token outside the vocabulary of {self._vocab_size}")


def _logprob(drawn: Drawn, logits_V: draw.Floats) -> Logprob:
    def of(token: int) -> float:
        return max(float(logits_V[token]) - drawn.normaliser, _NEVER)

    return Logprob(of(drawn.token), [(token, of(token)) for token in drawn.likeliest])


def _rules_of_draw(rules: Sampling) -> tuple[float, float, float, int, int]:
    """The last fields of each of a continuation's `Row`s."""
    alternatives = -1 if rules.logprobs is None else rules.logprobs
    if rules.temperature < _GREEDY_BELOW:
        return 0.0, 0.0, 1.0, 0, alternatives
    return rules.temperature, rules.min_p, rules.top_p, rules.top_k, alternatives


def _has_penalties(rules: Sampling) -> bool:
    output = rules.presence_penalty or rules.frequency_penalty
    return bool(output) or rules.repetition_penalty != 1


def _forbidden(matcher: Matcher, state: State) -> NDArray[np.bool_]:
    """What the grammar forbids, and an end before `min_tokens` unless only an end is left."""
    allowed = matcher.allowed()
    if state.must_go_on:
        longer = allowed.copy()
        longer[state.ends] = False
        if longer.any():
            allowed = longer
    return ~allowed
