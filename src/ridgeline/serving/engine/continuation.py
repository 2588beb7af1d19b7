"""One choice of an answer: token ids come in step by step, text and log-probabilities go out.

Used by `answer`. Text leaves when it is final: no half character, nothing that may turn out to be
the beginning of a stop string. A log-probability leaves together with its token's text, so that a
stop string does not show in them either.
"""

from collections import deque
from collections.abc import Iterator, Sequence

import msgspec

from ridgeline.serving.engine.messages import Logprob, Output
from ridgeline.serving.engine.stops import StopSearch, StopStrings
from ridgeline.serving.engine.tokenizer import Detokenizer, Tokenizer


class TokenLogprob(msgspec.Struct, frozen=True):
    """One token with its log-probability; its text begins at character `start` of the answer."""

    token: int
    start: int
    logprob: Logprob


class Delta(msgspec.Struct, frozen=True, gc=False):
    """What one step added to a choice. `finish` is OpenAI's reason, once it is complete.

    `stop` is the stop string that ended it; `stopped` says that the engine does not know yet.
    `tokens` are the ids that the step gave, whether their text may leave already or not.
    """

    choice: int
    text: str
    logprobs: Sequence[TokenLogprob] = ()
    finish: str | None = None
    stopped: bool = False
    tokens: Sequence[int] = ()
    stop: str | None = None


class Continuation:
    """The state of one choice.

    `ending` are the ids whose arrival as the last token is an end, not text. The text of the
    first `min_tokens` tokens is not searched for stop strings.
    """

    def __init__(
        self,
        choice: int,
        tokenizer: Tokenizer,
        stops: StopStrings,
        *,
        ending: frozenset[int],
        min_tokens: int = 0,
        logprobs: bool = False,
    ) -> None:
        self.tokens = 0
        self._choice = choice
        self._detokenizer = Detokenizer(tokenizer)
        self._search = StopSearch(stops) if stops.texts else None
        self._ending = ending
        self._min_tokens = min_tokens
        self._wants_logprobs = logprobs
        self._waiting: deque[TokenLogprob] = deque()
        self._decoded = 0  # characters, sent or held
        self._sent = 0  # characters

    def feed(self, output: Output) -> Delta:
        """One step's tokens of this choice."""
        if self._search is None or len(output.tokens) < 2:
            return self._feed(output)
        # A step may bring several tokens, and a stop string end the choice in the midst of them.
        texts: list[str] = []
        tokens: list[int] = []
        logprobs: list[TokenLogprob] = []
        for single in _singles(output):
            delta = self._feed(single)
            texts.append(delta.text)
            tokens += single.tokens
            logprobs += delta.logprobs
            if delta.finish is not None:
                break
        stopped = delta.stopped and output.finish is None
        text = "".join(texts)
        return Delta(self._choice, text, logprobs, delta.finish, stopped, tokens, delta.stop)

    def _feed(self, output: Output) -> Delta:
        self.tokens += len(output.tokens)
        text = self._decode(output)
        if self._search is not None and self.tokens > self._min_tokens:
            text = self._search.feed(text)
            if self._search.found:
                return self._delta(output, text, "stop", stopped=output.finish is None)
            if output.finish is not None:
                text += self._search.flush()
        return self._delta(output, text, output.finish)

    def _decode(self, output: Output) -> str:
        tokens = output.tokens
        if output.finish == "stop" and tokens and tokens[-1] in self._ending:
            tokens = tokens[:-1]
        if self._wants_logprobs:
            text = "".join(
                self._decode_one(token, logprob)
                for token, logprob in zip(tokens, output.logprobs, strict=False)
            )
        else:
            text = self._detokenizer.feed(tokens)
        return text + self._detokenizer.flush() if output.finish is not None else text

    def _decode_one(self, token: int, logprob: Logprob) -> str:
        self._waiting.append(TokenLogprob(token, self._decoded, logprob))
        text = self._detokenizer.feed((token,))
        self._decoded += len(text)
        return text

    def _delta(
        self, output: Output, text: str, finish: str | None, *, stopped: bool = False
    ) -> Delta:
        which = self._search.which if self._search is not None else None
        if not self._wants_logprobs:
            return Delta(self._choice, text, (), finish, stopped, output.tokens, which)
        self._sent += len(text)
        cut = self._search is not None and self._search.found
        logprobs = []
        # A token whose characters are still to come begins where the sent text ends.
        while self._waiting and (self._waiting[0].start < self._sent or (finish and not cut)):
            logprobs.append(self._waiting.popleft())
        return Delta(self._choice, text, logprobs, finish, stopped, output.tokens, which)


def _singles(output: Output) -> Iterator[Output]:
    """An output of several tokens as the outputs of one each that it stands for."""
    last = len(output.tokens) - 1
    for at, token in enumerate(output.tokens):
        yield Output(
            output.id,
            output.index,
            [token],
            logprobs=output.logprobs[at : at + 1],
            finish=output.finish if at == last else None,
        )
