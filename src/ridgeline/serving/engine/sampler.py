"""From logits to tokens: every rule of `Sampling`, in one order, for each row by itself.

Called by `loop` once a step with a row for each sequence that gets a token. What a row yields
depends on its logits and its state alone, never on the rest of the batch. The order of rules is
vLLM's:

    log-probabilities of the raw logits          if asked for
    logit bias
    repetition, frequency, presence penalty
    min_tokens (no end yet), then the grammar    masks; the grammar wins
    temperature 0: the largest, or else
    temperature, min-p, top-k, top-p, draw       in `draw`
"""

import os
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from ridgeline.serving.engine import draw
from ridgeline.serving.engine.constraint import Matcher
from ridgeline.serving.engine.messages import Logprob, Sampling

_GREEDY_BELOW = 1e-5  # a temperature that float32 cannot divide by; vLLM draws the line there too
_NEVER = -9999.0  # instead of -inf, which JSON cannot say; OpenAI's number


@dataclass(frozen=True, slots=True)
class Chosen:
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

    def penalise(self, logits_V: draw.Row, rules: Sampling) -> None:
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

    __slots__ = ("bias_ids", "biases", "ends", "key", "matcher", "position", "sampling", "tally")

    def __init__(self, sampling: Sampling, key: int, matcher: Matcher | None) -> None:
        self.sampling = sampling
        self.key = key
        self.matcher = matcher
        self.position = 0
        self.tally: _Tally | None = None
        self.bias_ids = np.array(list(sampling.logit_bias), np.intp)
        self.biases = np.array(list(sampling.logit_bias.values()), np.float32)
        self.ends = np.empty(0, np.intp)

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
        ruled = self.tally is not None or self.matcher is not None
        return ruled or len(self.biases) > 0 or self.must_go_on

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

    `eos_ids` are what `min_tokens` forbids, beside a request's stop tokens. `seeds` is asked
    once for each continuation without a seed.
    """

    def __init__(
        self,
        vocab_size: int,
        eos_ids: Collection[int],
        *,
        seeds: Callable[[], int] = fresh_seed,
    ) -> None:
        self._vocab_size = vocab_size
        self._eos_ids = frozenset(eos_ids)
        self._seeds = seeds
        self._scratch_V = np.empty(vocab_size, np.float32)
        self._weights_V = np.empty(vocab_size, np.float32)

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
        state = State(sampling, draw.stream_key(seed, index), matcher)
        self._check_ids(sampling.logit_bias, "logit_bias")
        if _has_penalties(sampling):
            self._check_ids(prompt_ids, "prompt")
            state.tally = _Tally(prompt_ids)
        if sampling.min_tokens:
            ends = self._eos_ids.union(sampling.stop_token_ids)
            state.ends = np.array([end for end in ends if 0 <= end < self._vocab_size], np.intp)
        return state

    def sample(self, logits_RV: torch.Tensor, states: Sequence[State]) -> list[Chosen]:
        """One token for each row, in order; `logits_RV` is float32 and left as it was.

        A row that is not finite, or whose grammar fails, gets a `Chosen` with an error; the
        other rows are not touched by that.
        """
        rows_RV: NDArray[np.float32] = logits_RV.detach().cpu().numpy()
        assert rows_RV.dtype == np.float32, f"logits are {rows_RV.dtype}, not float32"
        assert rows_RV.shape == (len(states), self._vocab_size), f"logits are {rows_RV.shape}"
        best_R = rows_RV.argmax(axis=1).tolist()
        return [
            self._choose(logits_V, best, state)
            for logits_V, best, state in zip(rows_RV, best_R, states, strict=True)
        ]

    def _choose(self, logits_V: draw.Row, best: int, state: State) -> Chosen:
        peak = float(logits_V[best])  # NaN if any is NaN: argmax finds the first
        if not np.isfinite(peak):
            return Chosen(-1, error=f"the model's largest logit is {peak}")
        try:
            token = self._token(logits_V, best, state)
            state.accept(token)
        except ValueError as error:
            return Chosen(-1, error=str(error))
        return Chosen(token, self._logprob(logits_V, peak, token, state.sampling.logprobs))

    def _token(self, logits_V: draw.Row, best: int, state: State) -> int:
        rules = state.sampling
        if state.changes_logits:
            logits_V = self._adjusted(logits_V, state)
            best = int(logits_V.argmax())
            if logits_V[best] == -np.inf:
                raise ValueError("the model finds every allowed token impossible")
        if rules.temperature < _GREEDY_BELOW:
            return best
        chance = draw.uniform(state.key, state.position)
        return draw.draw(logits_V, float(logits_V[best]), rules, chance, self._weights_V)

    def _adjusted(self, logits_V: draw.Row, state: State) -> draw.Row:
        """A copy with the rules before temperature applied; only the tokens they touch."""
        adjusted_V = self._scratch_V
        adjusted_V[:] = logits_V
        if len(state.biases):
            adjusted_V[state.bias_ids] += state.biases
        if state.tally is not None:
            state.tally.penalise(adjusted_V, state.sampling)
        if state.matcher is not None:
            np.copyto(adjusted_V, -np.inf, where=_forbidden(state.matcher, state))
        elif state.must_go_on:
            adjusted_V[state.ends] = -np.inf
        return adjusted_V

    def _logprob(
        self, logits_V: draw.Row, peak: float, token: int, alternatives: int | None
    ) -> Logprob | None:
        if alternatives is None:
            return None
        total = draw.log_normaliser(logits_V, peak)
        top = draw.largest(logits_V, alternatives).tolist()
        return Logprob(
            max(float(logits_V[token]) - total, _NEVER),
            [(other, max(float(logits_V[other]) - total, _NEVER)) for other in top],
        )

    def _check_ids(self, ids: Collection[int], what: str) -> None:
        if ids and not (min(ids) >= 0 and max(ids) < self._vocab_size):
            raise ValueError(f"{what} has a token outside the vocabulary of {self._vocab_size}")


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
