"""What happened to requests: one `Exchange` each, and the last minutes of all of them.

Everything here is bounded: rings of seconds, of finished requests and of errors. Times are
monotonic nanoseconds that callers pass in. The console and `metrics` read from here.
"""

import math
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any

import msgspec

from ridgeline.serving.gateway.sse import Usage

WINDOW_S = 120
MOST_SAMPLES = 8192
MOST_TEXT_BYTES = 64 * 1024  # of a prompt or an answer, where those are logged
CANCELLED = 499  # nginx's number for a client that left before its answer was complete


@dataclass(slots=True)
class Exchange:
    """One request and its answer, as it goes.

    `left` says that the client did not stay. `model` is empty until a replica was found for it, so
    that names which clients make up never become labels; so is `tenant` until its key was believed.
    `contents` counts events with text; `usage` is the replica's own count. `reached` says that some
    replica may have taken it, `complete` that an answer came to its end, `refused` that it was a
    replica's no: whether the client stayed to its end changes neither. `ended_ns` is 0 until the
    answer's end was sent, and so are the other times until what they name has happened. `reasons`
    has what each policy decided, by its name; `warm_tokens` of the prompt were believed to be in
    the chosen replica's cache, `uncached_tokens` not, and `others` were there. `session` is as the
    client names it, `hashes` are of its prompt's blocks, which most likely has `expected_tokens`.
    """

    id: str
    endpoint: str
    started_ns: int
    started_unix_s: float
    model: str = ""
    stream: bool = False
    replica: str = ""
    version: str = ""
    status: int = 0
    retries: int = 0
    error: str = ""
    contents: int = 0
    first_ns: int = 0
    last_ns: int = 0
    ended_ns: int = 0
    reached: bool = False
    complete: bool = False
    refused: bool = False
    left: bool = False
    decisions: list[bytes] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)
    asked: bytes = b""
    told: bytearray | None = None
    usage: Usage | None = None
    client_id: str = ""
    tenant: str = ""
    key_id: str = ""
    priority_class: str = ""
    rule: str = ""
    reasons: dict[str, str] = field(default_factory=dict)
    warm_tokens: int = 0
    uncached_tokens: int = 0
    others: int = 0
    resumed: int = 0
    usd: Decimal = Decimal(0)
    basis: str = ""
    admitted_ns: int = 0
    dequeued_ns: int = 0
    sent_ns: int = 0
    session: str = ""
    hashes: tuple[int, ...] = ()
    expected_tokens: int = 0

    def said(self, contents: int, now_ns: int) -> int:
        """New events with text arrived; gives the nanoseconds since those before (0: the first)."""
        gap_ns = now_ns - self.last_ns if self.last_ns else 0
        self.first_ns = self.first_ns or now_ns
        self.last_ns = now_ns
        self.contents += contents
        return gap_ns

    def wrote(self, answer: bytes) -> None:
        """More of the answer, where answers are logged: its beginning is kept."""
        if self.told is not None and len(self.told) < MOST_TEXT_BYTES:
            self.told += answer[: MOST_TEXT_BYTES - len(self.told)]

    def routed(self, replica: str, version: str, reason: str, decision: bytes) -> None:
        """A replica was chosen; `decision` is the view and the route, as JSON."""
        self.replica, self.version = replica, version
        self.reasons["route"] = reason
        self.decisions.append(decision)

    def attempt_id(self) -> str:
        """What the latest attempt is called at its replica; each has its own."""
        attempts = len(self.decisions)
        return self.id if attempts < 2 else f"{self.id}~{attempts}"

    def why(self) -> bytes:
        """All that was decided for it, as JSON, for `ridgeline why`."""
        told = msgspec.json.encode(
            {
                "model": self.model,
                "endpoint": self.endpoint,
                "client_id": self.client_id,
                "class": self.priority_class,
                "rule": self.rule,
                "reasons": self.reasons,
                "warm_tokens": self.warm_tokens,
                "retries": self.retries,
                "resumed": self.resumed,
                "replica": self.replica,
                "version": self.version,
                "status": self.status,
                "error": self.error[:300],
                "basis": self.basis,
                "split_s": self.split_s(),
            }
        )
        return told[:-1] + b',"decisions":[' + b",".join(self.decisions) + b"]}"

    def answered(self, status: int) -> None:
        """An answer has begun; what earlier attempts met is past, but for a client that left."""
        if not self.left:
            self.status, self.error = status, ""

    def failed_at(self, version: str) -> None:
        """A replica of this version failed it, whoever may answer it then."""
        self.failures.append(version)

    def abandoned(self) -> None:
        """The client left before its answer was complete."""
        if not self.ended_ns:
            self.left = True
            self.failed(CANCELLED, "the client left")

    def failed(self, status: int, error: str) -> None:
        """What went wrong, for the record; of several the last counts."""
        self.status, self.error = status, error

    @property
    def output_tokens(self) -> int:
        """By the replica's count; of an answer cut short, by the events that carried text."""
        return self.usage.completion_tokens if self.usage else self.contents

    @property
    def prompt_tokens(self) -> int:
        """By the replica's count; 0 where it gave none."""
        return self.usage.prompt_tokens if self.usage else 0

    @property
    def cached_tokens(self) -> int:
        """Of the prompt, what the replica found in its cache; 0 where it does not say."""
        details = self.usage.prompt_tokens_details if self.usage else None
        return (details.cached_tokens or 0) if details else 0

    @property
    def ttft_s(self) -> float | None:
        """From the request to the first text; None without a stream."""
        return (self.first_ns - self.started_ns) / 1e9 if self.first_ns else None

    @property
    def tpot_s(self) -> float | None:
        """Mean time for each further token; None under two tokens."""
        further = self.output_tokens - 1
        if not self.first_ns or further < 1 or self.last_ns == self.first_ns:
            return None
        return (self.last_ns - self.first_ns) / 1e9 / further

    @property
    def e2e_s(self) -> float:
        """From the request to the end of its answer."""
        return (self.ended_ns - self.started_ns) / 1e9

    def split_s(self) -> dict[str, float]:
        """Where its time went, as far as it came: the parts add up to `e2e_s`.

        A whole answer has no first token that we see, so its `answer` is prefill and decode in one.
        """
        last: tuple[tuple[str, int], ...]
        if self.first_ns:
            last = (
                ("prefill", self.first_ns),
                ("decode", self.last_ns),
                ("network", self.ended_ns),
            )
        else:
            last = (("answer" if self.sent_ns else "rest", self.ended_ns),)
        split, since_ns = {}, self.started_ns
        before = (
            ("admission", self.admitted_ns),
            ("queue", self.dequeued_ns),
            ("route", self.sent_ns),
        )
        for part, until_ns in (*before, *last):
            if until_ns:
                until_ns = max(until_ns, since_ns)  # a resumed stream was sent after its first text
                split[part] = (until_ns - since_ns) / 1e9
                since_ns = until_ns
        return split


@dataclass(slots=True)
class _Second:
    at: int = -1
    requests: int = 0
    errors: int = 0
    tokens: int = 0


@dataclass(frozen=True, slots=True)
class _Sample:
    at_ns: int
    ttft_s: float | None
    tpot_s: float | None
    e2e_s: float


@dataclass(slots=True)
class Record:
    """The last `WINDOW_S` seconds in numbers, the last requests and the last errors."""

    began_ns: int
    in_flight: int = 0
    requests: int = 0
    tokens: int = 0
    _seconds: list[_Second] = field(
        default_factory=lambda: [_Second() for _ in range(WINDOW_S + 1)]
    )
    _samples: deque[_Sample] = field(default_factory=lambda: deque(maxlen=MOST_SAMPLES))
    _recent: deque[dict[str, Any]] = field(default_factory=lambda: deque(maxlen=50))
    _errors: deque[dict[str, Any]] = field(default_factory=lambda: deque(maxlen=20))

    def streamed(self, tokens: int, now_ns: int) -> None:
        """Tokens passed; rates are live this way, not lumps at each stream's end."""
        self._second(now_ns).tokens += tokens
        self.tokens += tokens

    def finished(self, exchange: Exchange) -> None:
        """A request has ended, well or not."""
        self.requests += 1
        # The replica's count corrects the events that were counted while they passed.
        self.streamed(exchange.output_tokens - exchange.contents, exchange.ended_ns)
        second = self._second(exchange.ended_ns)
        second.requests += 1
        self._recent.append(_row(exchange))
        if exchange.status < 400:
            self._samples.append(
                _Sample(exchange.ended_ns, exchange.ttft_s, exchange.tpot_s, exchange.e2e_s)
            )
        elif exchange.status != CANCELLED:
            second.errors += 1
            self._errors.append(_row(exchange))

    def rates(self, now_ns: int) -> dict[str, Any]:
        """A rate is the mean of the last ten whole seconds; series go back a whole window."""
        series = [self._at(now_ns, ago) for ago in range(WINDOW_S, 0, -1)]
        tokens = [max(0, one.tokens) for one in series]
        requests = [one.requests for one in series]
        return {
            "requests_per_s": sum(requests[-10:]) / 10,
            "output_tokens_per_s": sum(tokens[-10:]) / 10,
            "errors_per_s": sum(one.errors for one in series[-10:]) / 10,
            "series": {
                "requests": requests,
                "output_tokens": tokens,
                "errors": [one.errors for one in series],
            },
        }

    def latency(self, now_ns: int) -> dict[str, Any]:
        """Percentiles over the answered requests of the window, in seconds."""
        since_ns = now_ns - WINDOW_S * 1_000_000_000
        samples = [sample for sample in self._samples if sample.at_ns >= since_ns]
        return {
            "window_s": WINDOW_S,
            "ttft": percentiles([s.ttft_s for s in samples if s.ttft_s is not None]),
            "tpot": percentiles([s.tpot_s for s in samples if s.tpot_s is not None]),
            "e2e": percentiles([s.e2e_s for s in samples]),
        }

    def samples(self, now_ns: int) -> dict[str, list[float]]:
        """The window's latencies in seconds, the latest thousand of each."""
        since_ns = now_ns - WINDOW_S * 1_000_000_000
        kept = [one for one in self._samples if one.at_ns >= since_ns][-1000:]
        return {
            "ttft": [one.ttft_s for one in kept if one.ttft_s is not None],
            "tpot": [one.tpot_s for one in kept if one.tpot_s is not None],
            "e2e": [one.e2e_s for one in kept],
        }

    def recent(self) -> list[dict[str, Any]]:
        """The last requests that ended, newest first."""
        return list(reversed(self._recent))

    def errors(self) -> list[dict[str, Any]]:
        """The last requests that failed (a client that left did not), newest first."""
        return list(reversed(self._errors))

    def _second(self, now_ns: int) -> _Second:
        at = (now_ns - self.began_ns) // 1_000_000_000
        second = self._seconds[at % len(self._seconds)]
        if second.at != at:
            second.at, second.requests, second.errors, second.tokens = at, 0, 0, 0
        return second

    def _at(self, now_ns: int, ago: int) -> _Second:
        at = (now_ns - self.began_ns) // 1_000_000_000 - ago
        second = self._seconds[at % len(self._seconds)]
        return second if second.at == at else _Second(at)


def percentiles(values: Sequence[float]) -> dict[str, float | int | None]:
    """p50, p90 and p99 by nearest rank (a value that really occurred), and how many there are."""
    ordered = sorted(values)
    ranks = {"p50": 0.50, "p90": 0.90, "p99": 0.99}
    found = {
        name: ordered[math.ceil(share * len(ordered)) - 1] if ordered else None
        for name, share in ranks.items()
    }
    return {**found, "count": len(ordered)}


def _row(exchange: Exchange) -> dict[str, Any]:
    usage = exchange.usage
    return {
        "id": exchange.id,
        "at_unix_s": exchange.started_unix_s,
        "endpoint": exchange.endpoint,
        "tenant": exchange.tenant,
        "model": exchange.model,
        "replica": exchange.replica,
        "status": exchange.status,
        "stream": exchange.stream,
        "retries": exchange.retries,
        "error": exchange.error[:300],
        "ttft_s": exchange.ttft_s,
        "tpot_s": exchange.tpot_s,
        "e2e_s": exchange.e2e_s,
        "prompt_tokens": usage.prompt_tokens if usage else None,
        "output_tokens": exchange.output_tokens,
    }
