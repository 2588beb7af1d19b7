"""An engine without a model, which does what the prompt tells it to. For tests of the front.

It speaks `byte_model`'s tokens. The prompt's text after the last "say:" (to the next special
token) is what it generates, a byte a step; `n` continuations end with their number. Words in the
prompt change its manners:

    loop    says it again and again, until max_tokens
    slow    takes a millisecond a step
    crash   the process dies in the step after the first token
    fail    the request ends with an error instead of a first token;  late-fail  after a token,
            and once a request with the word trip has come
    cached  three prompt tokens were found in the cache

`made_to_fail`, `never_ready` and `forever_loading` are engines that do not start.
"""

import os
import time
from dataclasses import dataclass
from typing import NoReturn

from tests.serving.engine.byte_model import EOS, VOCAB

from ridgeline.errors import ModelError
from ridgeline.serving.engine.config import EngineConfig
from ridgeline.serving.engine.messages import (
    Abort,
    Add,
    Logprob,
    Output,
    Started,
    Stats,
    Stepped,
)

DEFAULT_CONTEXT = 100_000


@dataclass
class Sequence:
    """One continuation on its way."""

    add: Add
    index: int
    script: list[int]
    order: bytes
    generated: int = 0

    def next(self) -> Output:
        rules = self.add.sampling
        if b"fail" in self.order and self.generated == (b"late-fail" in self.order):
            return self._output([], finish="error", error="told to fail")
        self.generated += 1
        token = self._token()
        finish = "length" if self.generated >= rules.max_tokens else None
        if token in rules.stop_token_ids or (token == EOS and not rules.ignore_eos):
            finish = "stop"
        return self._output([token], finish=finish)

    def _token(self) -> int:
        place = self.generated - 1
        if b"loop" in self.order or self.add.sampling.ignore_eos:
            return self.script[place % len(self.script)]
        return self.script[place] if place < len(self.script) else EOS

    def _output(self, tokens: list[int], *, finish: str | None, error: str = "") -> Output:
        count = self.add.sampling.logprobs
        first = self.generated <= 1 and self.index == 0
        return Output(
            self.add.id,
            self.index,
            tokens,
            logprobs=[] if count is None else [_logprob(token, count) for token in tokens],
            finish=finish,
            cached_tokens=3 if first and b"cached" in self.order else 0,
            error=error,
        )


class Stub:
    """The engine; see the module's docstring."""

    def __init__(self, config: EngineConfig, clock: object = None) -> None:
        self._config = config
        self._sequences: dict[tuple[str, int], Sequence] = {}
        self._tripped = False
        self._steps = self._prompt_tokens = self._generated = 0

    @property
    def busy(self) -> bool:
        return bool(self._sequences)

    def started(self) -> Started:
        return Started(
            max_model_len=self._config.max_model_len or DEFAULT_CONTEXT,
            blocks=64,
            block_size=16,
            vocab_size=VOCAB,
            dtype="none",
            threads=1,
            kernels="none",
            stages_s={"weights": 0.0},
        )

    def add(self, add: Add) -> None:
        self._prompt_tokens += len(add.prompt)
        order = bytes(token for token in add.prompt if token < 256)
        self._tripped |= b"trip" in order
        for index in range(add.n):
            script = _script(add.prompt) + (list(str(index).encode()) if add.n > 1 else [])
            self._sequences[add.id, index] = Sequence(add, index, script, order)

    def abort(self, abort: Abort) -> None:
        for request, index in list(self._sequences):
            if request == abort.id and abort.index in (None, index):
                del self._sequences[request, index]

    def step(self) -> Stepped:
        outputs = []
        for key, sequence in list(self._sequences.items()):
            if b"late-fail" in sequence.order and sequence.generated and not self._tripped:
                time.sleep(0.001)
                continue
            if b"crash" in sequence.order and sequence.generated:
                os._exit(3)
            output = sequence.next()
            outputs.append(output)
            if output.finish:
                del self._sequences[key]
        if any(b"slow" in sequence.order for sequence in self._sequences.values()):
            time.sleep(0.001)
        self._steps += 1
        self._generated += len(outputs)
        return Stepped(outputs, self._stats())

    def _stats(self) -> Stats:
        running = len(self._sequences)
        return Stats(
            running=running,
            kv_usage=running / 64,
            steps=self._steps,
            prompt_tokens=self._prompt_tokens,
            generation_tokens=self._generated,
        )


def made_to_fail(config: EngineConfig, clock: object) -> NoReturn:
    raise ModelError("the weights are torn", where=str(config.model), remedy="download again")


def never_ready(config: EngineConfig, clock: object) -> NoReturn:
    """Dies without a word."""
    os._exit(7)


def forever_loading(config: EngineConfig, clock: object) -> NoReturn:
    """Loads until it is ended."""
    while True:
        time.sleep(0.05)


def _script(prompt: list[int]) -> list[int]:
    """The bytes after the last "say:"."""
    said = list(b"say:")
    for start in range(len(prompt) - len(said), -1, -1):
        if prompt[start : start + len(said)] == said:
            rest = prompt[start + len(said) :]
            end = next((at for at, token in enumerate(rest) if token >= 256), len(rest))
            return rest[:end] or list(b"ok")
    return list(b"ok")


def _logprob(token: int, count: int) -> Logprob:
    """The chosen token has -0.5, the byte after it -1.5, and so on."""
    return Logprob(-0.5, [((token + more) % 256, -0.5 - more) for more in range(count)])
