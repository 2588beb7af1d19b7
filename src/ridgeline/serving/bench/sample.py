"""What was seen of one request, and the measures that follow from it. No I/O, no clock.

All times are seconds since the run began, on one monotonic clock of the client.

    scheduled      sent          first token                last token   ended
        |---lag-----|---- TTFT -------|--gap--|--gap--| ... ----|----------|
                    |-------------------- E2E ------------------------------|
"""

from dataclasses import dataclass
from itertools import pairwise


@dataclass(frozen=True, slots=True)
class Answer:
    """What a client saw after it sent one request.

    `token_times_s` holds the arrival of every piece of the stream that carried content (text,
    reasoning or a tool call). The counts come from the server's `usage`, None where it sent
    none. `error` is a short kind ("http 429", "timeout"), "" for a whole answer; `detail` is
    the server's own words about it.
    """

    sent_s: float
    ended_s: float
    token_times_s: tuple[float, ...] = ()
    prompt_tokens: int | None = None
    output_tokens: int | None = None
    cached_tokens: int | None = None
    error: str = ""
    detail: str = ""


@dataclass(frozen=True, slots=True)
class Sample:
    """One request of a run: when it should have gone out, what was asked, what came."""

    index: int
    scheduled_s: float
    asked_prompt_tokens: int
    asked_output_tokens: int
    answer: Answer

    @property
    def ok(self) -> bool:
        """True for an answer that came whole and held at least one token."""
        return not self.answer.error and bool(self.answer.token_times_s)

    @property
    def lag_s(self) -> float:
        """How late the client itself sent the request."""
        return self.answer.sent_s - self.scheduled_s

    @property
    def output_tokens(self) -> int:
        """Output tokens as the server's usage counts them, else the pieces that carried content."""
        counted = self.answer.output_tokens
        return len(self.answer.token_times_s) if counted is None else counted

    @property
    def ttft_s(self) -> float | None:
        """Time to first token: from sending to the first piece with content."""
        times = self.answer.token_times_s
        return times[0] - self.answer.sent_s if times else None

    @property
    def scheduled_ttft_s(self) -> float | None:
        """Time to first token as a user of an open system feels it: from the scheduled moment."""
        times = self.answer.token_times_s
        return times[0] - self.scheduled_s if times else None

    @property
    def tpot_s(self) -> float | None:
        """Time per output token after the first: (last - first) / (tokens - 1).

        None below two tokens: one token has no pace.
        """
        times = self.answer.token_times_s
        if len(times) < 2 or self.output_tokens < 2:
            return None
        return (times[-1] - times[0]) / (self.output_tokens - 1)

    @property
    def gaps_s(self) -> list[float]:
        """Inter-token latencies: every gap between two pieces with content."""
        times = self.answer.token_times_s
        return [later - earlier for earlier, later in pairwise(times)]

    @property
    def e2e_s(self) -> float:
        """From sending to the end of the stream."""
        return self.answer.ended_s - self.answer.sent_s

    @property
    def scheduled_e2e_s(self) -> float:
        """From the scheduled moment to the end of the stream."""
        return self.answer.ended_s - self.scheduled_s
