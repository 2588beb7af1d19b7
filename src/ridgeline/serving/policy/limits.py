"""What a tenant or a key may use: reserve before a request runs, settle when it has. Pure.

An `Account` is all that one tenant's or key's limits need to know. Reserving takes the most that
a request may use, settling puts what it did use in its place:

                    granted at t              runs                settled at T
    requests        1, counts from t to t + 60 s
    input tokens    the estimate, from t ───────────▶ the real number, also from t
    output tokens   the most, held while it runs ───▶ the real number, from T to T + 60 s
    money           the most, held while it runs ───▶ the real cost, in the period of t
    open            1, while it runs

The laws:
- What a limit's window holds, with what running requests hold, never passes the limit, but for
  the tokens by which requests used more than was reserved for them.
- Money spent and held never passes a budget where nobody uses more than was reserved.
- Reserving and releasing leaves an account as it was.

That a request is settled only once is the business of who keeps the reservations. Called by the
gateway's ledger and by the simulator.
"""

from dataclasses import dataclass
from decimal import Decimal

from ridgeline.serving.policy.periods import Period
from ridgeline.serving.policy.window import Window, aged, counted, left_ns

_NS = 1_000_000_000
#: When to ask again where only the end of a running request makes room: nobody knows when.
SOON_S = 1.0
ZERO = Decimal(0)
_EMPTY = Window()


@dataclass(frozen=True, slots=True)
class Budget:
    """Money for a calendar day or month of a time zone (IANA name)."""

    usd: Decimal
    per: str
    timezone: str


@dataclass(frozen=True, slots=True)
class Limits:
    """Most in any 60 seconds, most at once, most money; None where there is no limit."""

    requests_per_minute: int | None = None
    input_tokens_per_minute: int | None = None
    output_tokens_per_minute: int | None = None
    concurrent: int | None = None
    budget: Budget | None = None

    @property
    def counts_tokens(self) -> bool:
        """Whether it matters how many tokens a request has."""
        return self.input_tokens_per_minute is not None or self.output_tokens_per_minute is not None


@dataclass(frozen=True, slots=True)
class Use:
    """What a request may use at most, or what it has used."""

    input_tokens: int
    output_tokens: int
    usd: Decimal = ZERO


@dataclass(frozen=True, slots=True)
class Account:
    """The state of one tenant's or key's limits.

    Money is counted only while there is a budget: that of the requests which began in `period`.
    """

    window: Window = _EMPTY
    open: int = 0
    held_output_tokens: int = 0
    period: Period | None = None
    held_usd: Decimal = ZERO
    spent_usd: Decimal = ZERO


@dataclass(frozen=True, slots=True)
class Granted:
    """The request may run; `account` holds what it may use."""

    account: Account
    reason: str


@dataclass(frozen=True, slots=True)
class Later:
    """Not now. After `retry_after_s` there is room, unless others take it."""

    limit: str
    reason: str
    retry_after_s: float


@dataclass(frozen=True, slots=True)
class Never:
    """The request alone is larger than the limit: waiting does not help."""

    limit: str
    reason: str


def reserve(
    account: Account, limits: Limits, most: Use, now_ns: int, period: Period | None = None
) -> Granted | Later | Never:
    """Whether a request that uses at most this may run now.

    `period` is that of the budget around now; None where there is no budget.
    """
    if never := _never(limits, most):
        return never
    if account.period != period:
        account = begun(account, period)
    window = aged(account.window, now_ns)
    if refusals := _refusals(account, window, limits, most, now_ns):
        return max(refusals, key=lambda refusal: refusal.retry_after_s)
    window = counted(window, now_ns, now_ns, requests=1, inputs=most.input_tokens)
    return Granted(_held(account, window, most, now_ns, 1), "within all limits")


def settle(account: Account, held: Use, began_ns: int, used: Use, now_ns: int) -> Account:
    """The account after a request that was granted `held` at `began_ns` has used `used`."""
    surplus = used.input_tokens - held.input_tokens
    window = aged(account.window, now_ns)
    window = counted(window, began_ns, now_ns, inputs=surplus)
    window = counted(window, now_ns, now_ns, outputs=used.output_tokens)
    return _held(account, window, held, began_ns, -1, used.usd)


def release(account: Account, held: Use, began_ns: int, now_ns: int) -> Account:
    """The account after a request that was granted `held` at `began_ns` has used nothing."""
    window = aged(account.window, now_ns)
    window = counted(window, began_ns, now_ns, requests=-1, inputs=-held.input_tokens)
    return _held(account, window, held, began_ns, -1)


def begun(
    account: Account, period: Period | None, *, held_usd: Decimal = ZERO, spent_usd: Decimal = ZERO
) -> Account:
    """The account as it begins to count a period's money, with what is known of it already.

    Who keeps the reservations and entries adds them up here: so a budget that is set or changed in
    the middle of a month counts the whole month.
    """
    output_tokens = account.held_output_tokens
    return Account(account.window, account.open, output_tokens, period, held_usd, spent_usd)


def _held(
    account: Account,
    window: Window,
    held: Use,
    began_ns: int,
    more: int,
    spent_usd: Decimal = ZERO,
) -> Account:
    """With one running request more (1) or less (-1); its money counts in its own period only."""
    held_usd, all_spent_usd = account.held_usd, account.spent_usd
    if account.period is not None and account.period.holds(began_ns):
        held_usd += more * held.usd
        all_spent_usd += spent_usd
    output_tokens = account.held_output_tokens + more * held.output_tokens
    open_now = account.open + more
    return Account(window, open_now, output_tokens, account.period, held_usd, all_spent_usd)


def _never(limits: Limits, most: Use) -> Never | None:
    """The first limit that the request alone passes."""
    inputs, outputs = limits.input_tokens_per_minute, limits.output_tokens_per_minute
    if inputs is not None and most.input_tokens > inputs:
        return _too_large("input", most.input_tokens, inputs)
    if outputs is not None and most.output_tokens > outputs:
        return _too_large("output", most.output_tokens, outputs)
    budget = limits.budget
    if budget is not None and most.usd > budget.usd:
        reason = (
            f"it may cost {_shown(most.usd)} USD, more than the {_shown(budget.usd)} USD "
            f"of a {budget.per}"
        )
        return Never("budget", reason)
    return None


def _too_large(kind: str, asked: int, limit: int) -> Never:
    reason = f"it may need {asked} {kind} tokens, more than the {limit} of a whole minute"
    return Never(f"{kind}_tokens_per_minute", reason)


def _refusals(
    account: Account, window: Window, limits: Limits, most: Use, now_ns: int
) -> list[Later]:
    """A refusal for each limit that has no room now."""
    outputs = (window.output_tokens, most.output_tokens, account.held_output_tokens)
    found = [
        _full(window, 1, limits.requests_per_minute, (window.requests, 1, 0), now_ns),
        _full(
            window,
            2,
            limits.input_tokens_per_minute,
            (window.input_tokens, most.input_tokens, 0),
            now_ns,
        ),
        _full(window, 3, limits.output_tokens_per_minute, outputs, now_ns),
        _over_budget(account, limits.budget, most, now_ns),
    ]
    if limits.concurrent is not None and account.open >= limits.concurrent:
        reason = f"{account.open} requests are running, and {limits.concurrent} may run at once"
        found.append(Later("concurrent", reason, SOON_S))
    return [refusal for refusal in found if refusal]


#: What the columns of `window.Second` are called in limits.
_COLUMNS = ("", "requests", "input_tokens", "output_tokens")


def _full(
    window: Window, column: int, limit: int | None, counts: tuple[int, int, int], now_ns: int
) -> Later | None:
    """Whether used, asked and held together pass a window's limit, and when they no longer do."""
    used, asked, held = counts
    if limit is None or used + asked + held <= limit:
        return None
    name = _COLUMNS[column]
    running = f", {held} are held by running requests" if held else ""
    reason = (
        f"{used} of {limit} {name.replace('_', ' ')} were used in the last minute{running}, "
        f"and {asked} more may be needed"
    )
    at_ns = left_ns(window, column, used + asked + held - limit)
    return Later(f"{name}_per_minute", reason, SOON_S if at_ns is None else (at_ns - now_ns) / _NS)


def _over_budget(account: Account, budget: Budget | None, most: Use, now_ns: int) -> Later | None:
    """Money that is only held may come back any time; what is spent, with the next period."""
    if budget is None:
        return None
    needed_usd = account.spent_usd + most.usd
    if needed_usd + account.held_usd <= budget.usd:
        return None
    assert account.period is not None, "where there is a budget there is a period"
    reason = (
        f"{_shown(account.spent_usd)} of the {_shown(budget.usd)} USD of this {budget.per} are "
        f"spent, {_shown(account.held_usd)} are held by running requests, and "
        f"{_shown(most.usd)} more may be needed"
    )
    next_s = (account.period.end_ns - now_ns) / _NS
    return Later("budget", reason, SOON_S if needed_usd <= budget.usd else next_s)


def _shown(usd: Decimal) -> str:
    return f"{usd.normalize():f}"
