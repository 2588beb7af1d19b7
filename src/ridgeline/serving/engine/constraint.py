"""Holds a continuation to its grammar: which tokens may come next, after those that came.

Called by `loop`, which compiles, and `sampler`, which masks. The work is llguidance's; here are
its limits, its errors as exceptions, and a memory of grammars that were compiled before.
"""

from collections import OrderedDict
from collections.abc import Collection
from typing import Any

import numpy as np
from llguidance import LLMatcher, LLParserLimits, LLTokenizer
from numpy.typing import NDArray

_REMEMBERED = 32
_REASON_CHARS = 300


def limits() -> Any:
    """What one grammar may cost: some 20 MB, and some 10 ms of thinking about one token."""
    return LLParserLimits(
        initial_lexer_fuel=200_000,
        step_lexer_fuel=100_000,
        step_max_items=20_000,
        max_lexer_states=20_000,
        max_grammar_size=100_000,
        verbose_errors=False,
    )


def reason(matcher: Any) -> str:
    """Why a matcher failed, in one line fit for a client."""
    text = str(matcher.get_error()).replace("<non-verbose/>", " ")
    text = " ".join(text.split())
    if text == "NoExtensionBias":
        return "nothing satisfies it"
    return text if len(text) <= _REASON_CHARS else text[:_REASON_CHARS] + "..."


class Matcher:
    """One continuation's place in its grammar.

    `accept` each chosen token. Raises ValueError, from then on, where the grammar turned out
    too costly or a token does not fit; only that continuation is lost.
    """

    def __init__(self, matcher: Any, vocab_size: int) -> None:
        self._matcher = matcher
        self._bits = np.zeros(-(-vocab_size // 32), np.int32)
        self._vocab_size = vocab_size

    @property
    def finished(self) -> bool:
        """Whether the text is whole and nothing but the end of the sequence may follow."""
        return bool(self._matcher.is_stopped()) and not self._matcher.is_error()

    def allowed(self) -> NDArray[np.bool_]:
        """Which of the vocabulary may come next, [vocab_size]; an end whenever it may end."""
        self._matcher.unsafe_compute_mask_ptr(self._bits.ctypes.data, self._bits.nbytes)
        self._check()
        bits = np.unpackbits(self._bits.view(np.uint8), bitorder="little")
        return bits[: self._vocab_size].view(np.bool_)

    def accept(self, token: int) -> None:
        """Move on by a token, which has to be one of those allowed."""
        self._matcher.consume_token(token)
        self._check()

    def _check(self) -> None:
        if self._matcher.is_error():
            raise ValueError(f"The grammar failed: {reason(self._matcher)}")


class Constraints:
    """Compiles grammars for one model's vocabulary.

    `tokenizer_json` is the text of a tokenizer.json; `vocab_size` is the width of the logits,
    which may exceed the tokenizer's vocabulary (the rest is never allowed). Takes 0.3 s for
    50,000 tokens.
    """

    def __init__(self, tokenizer_json: str, vocab_size: int, eos_ids: Collection[int]) -> None:
        self._vocab_size = vocab_size
        self._tokenizer = LLTokenizer(
            tokenizer_json,
            n_vocab=vocab_size,
            eos_token=sorted(eos_ids),
            slices=LLTokenizer.json_slices(),
        )
        self._compiled: OrderedDict[str, Any] = OrderedDict()

    def matcher(self, grammar: str) -> Matcher:
        """The beginning of a grammar. Raises ValueError with the reason it cannot be compiled.

        A millisecond for an honest schema the first time, 0.05 ms from then on.
        """
        compiled = self._compiled.pop(grammar, None)
        if compiled is None:
            compiled = LLMatcher(self._tokenizer, grammar, log_level=0, limits=limits())
            if compiled.is_error():
                raise ValueError(f"The grammar cannot be compiled: {reason(compiled)}")
        self._compiled[grammar] = compiled
        if len(self._compiled) > _REMEMBERED:
            self._compiled.popitem(last=False)
        return Matcher(compiled.deep_copy(), self._vocab_size)
