from dataclasses import dataclass, field
from decimal import Decimal

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ridgeline.serving.policy.limits import (
    Account,
    Budget,
    Granted,
    Later,
    Limits,
    Never,
    Use,
    begun,
    release,
    reserve,
    settle,
)
from ridgeline.serving.policy.periods import Period, period

NS = 1_000_000_000
NOW_NS = 1_800_000_000 * NS
DAY = period("day", "Europe/Berlin", NOW_NS)


def granted(account: Account, limits: Limits, most: Use, now_ns: int = NOW_NS) -> Account:
    decision = reserve(account, limits, most, now_ns, DAY if limits.budget else None)
    assert isinstance(decision, Granted), decision
    return decision.account


def later(account: Account, limits: Limits, most: Use, now_ns: int = NOW_NS) -> Later:
    decision = reserve(account, limits, most, now_ns, DAY if limits.budget else None)
    assert isinstance(decision, Later), decision
    return decision


def daily(usd: str) -> Limits:
    return Limits(budget=Budget(Decimal(usd), "day", "Europe/Berlin"))


def test_without_limits_everything_is_granted_and_counted() -> None:
    account = granted(Account(), Limits(), Use(10**12, 10**12, Decimal(10**6)))
    assert (account.open, account.window.requests) == (1, 1)


def test_a_request_larger_than_a_whole_minute_is_never_granted() -> None:
    limits = Limits(input_tokens_per_minute=1_000, output_tokens_per_minute=500)
    decision = reserve(Account(), limits, Use(1_001, 0), NOW_NS)
    assert decision == Never(
        "input_tokens_per_minute",
        "it may need 1001 input tokens, more than the 1000 of a whole minute",
    )
    assert isinstance(reserve(Account(), limits, Use(1_000, 501), NOW_NS), Never)
    assert isinstance(reserve(Account(), limits, Use(1_000, 500), NOW_NS), Granted)


def test_a_request_dearer_than_the_budget_is_never_granted() -> None:
    decision = reserve(Account(), daily("5"), Use(1, 1, Decimal("5.01")), NOW_NS, DAY)
    assert isinstance(decision, Never)
    assert decision.reason == "it may cost 5.01 USD, more than the 5 USD of a day"


def test_input_counts_from_when_it_was_granted_by_what_it_turned_out_to_be() -> None:
    limits = Limits(input_tokens_per_minute=1_000)
    account = granted(Account(), limits, Use(900, 0))
    account = settle(account, Use(900, 0), NOW_NS, Use(400, 0), NOW_NS + 30 * NS)
    assert account.window.input_tokens == 400
    assert granted(account, limits, Use(600, 0), NOW_NS + 30 * NS)
    assert granted(account, limits, Use(1_000, 0), NOW_NS + 61 * NS)


def test_output_is_held_while_a_request_runs_and_counts_from_its_end() -> None:
    limits = Limits(output_tokens_per_minute=1_000)
    account = granted(Account(), limits, Use(0, 900))
    # However long it runs, what it may still say is not given away.
    assert later(account, limits, Use(0, 200), NOW_NS + 300 * NS).retry_after_s == 1
    account = settle(account, Use(0, 900), NOW_NS, Use(0, 300), NOW_NS + 300 * NS)
    assert granted(account, limits, Use(0, 700), NOW_NS + 300 * NS)
    assert later(account, limits, Use(0, 701), NOW_NS + 300 * NS).retry_after_s == 61
    assert granted(account, limits, Use(0, 1_000), NOW_NS + 361 * NS)


def test_retry_after_is_when_enough_has_left_the_window() -> None:
    limits = Limits(requests_per_minute=2)
    account = granted(Account(), limits, Use(1, 1))
    account = granted(account, limits, Use(1, 1), NOW_NS + 10 * NS)
    refusal = later(account, limits, Use(1, 1), NOW_NS + 20 * NS + NS // 2)
    assert refusal.retry_after_s == 40.5
    assert (
        refusal.reason == "2 of 2 requests were used in the last minute, and 1 more may be needed"
    )


def test_of_several_limits_without_room_the_longest_wait_is_told() -> None:
    limits = Limits(requests_per_minute=1, concurrent=1)
    account = granted(Account(), limits, Use(1, 1))
    assert later(account, limits, Use(1, 1)).limit == "requests_per_minute"


def test_concurrent_counts_what_runs() -> None:
    limits = Limits(concurrent=1)
    account = granted(Account(), limits, Use(1, 1))
    assert later(account, limits, Use(1, 1), NOW_NS + 600 * NS).limit == "concurrent"
    account = settle(account, Use(1, 1), NOW_NS, Use(1, 1), NOW_NS + 600 * NS)
    assert granted(account, limits, Use(1, 1), NOW_NS + 600 * NS)


def test_a_spent_budget_waits_for_the_next_period_and_a_held_one_does_not() -> None:
    limits, most = daily("1"), Use(1, 1, Decimal("0.60"))
    account = granted(Account(), limits, most)
    assert later(account, limits, most).retry_after_s == 1
    account = settle(account, most, NOW_NS, most, NOW_NS + NS)
    refusal = later(account, limits, most, NOW_NS + NS)
    assert refusal.retry_after_s == (DAY.end_ns - NOW_NS - NS) / NS
    assert "0.6 of the 1 USD of this day are spent" in refusal.reason


def test_money_counts_in_the_period_in_which_its_request_began() -> None:
    limits, most = daily("1"), Use(1, 1, Decimal("0.60"))
    evening_ns, morning_ns = DAY.end_ns - NS, DAY.end_ns + NS
    tomorrow = period("day", "Europe/Berlin", morning_ns)
    account = granted(Account(), limits, most, evening_ns)
    decision = reserve(account, limits, most, morning_ns, tomorrow)
    assert isinstance(decision, Granted)
    account = settle(decision.account, most, evening_ns, most, morning_ns)
    assert account.spent_usd == 0
    account = settle(account, most, morning_ns, most, morning_ns)
    assert (account.spent_usd, account.held_usd) == (Decimal("0.60"), 0)


def test_a_period_can_begin_with_what_is_known_of_it() -> None:
    account = begun(Account(), DAY, held_usd=Decimal("0.3"), spent_usd=Decimal("0.5"))
    assert granted(account, daily("1"), Use(1, 1, Decimal("0.2")))
    assert later(account, daily("1"), Use(1, 1, Decimal("0.21"))).limit == "budget"


def test_an_account_goes_through_json_unchanged() -> None:
    account = granted(Account(), daily("5"), Use(7, 8, Decimal("0.000000001")))
    assert msgspec.json.decode(msgspec.json.encode(account), type=Account) == account


# ── laws ──

uses = st.builds(Use, st.integers(0, 60), st.integers(0, 60), st.integers(0, 60).map(Decimal))
all_limits = st.builds(
    Limits,
    st.none() | st.integers(1, 5),
    st.none() | st.integers(1, 150),
    st.none() | st.integers(1, 150),
    st.none() | st.integers(1, 4),
    st.none() | st.integers(1, 150).map(lambda usd: Budget(Decimal(usd), "day", "UTC")),
)
waits_ns = st.integers(0, 90 * NS) | st.integers(0, NS)


@dataclass
class Request:
    began_ns: int
    held: Use
    used: Use | None = None
    settled_ns: int = 0


@dataclass
class World:
    """What really happened, counted without any window."""

    limits: Limits
    period: Period | None
    now_ns: int = NOW_NS
    account: Account = field(default_factory=Account)
    requests: list[Request] = field(default_factory=list)

    def ask(self, most: Use) -> None:
        decision = reserve(self.account, self.limits, most, self.now_ns, self.period)
        if isinstance(decision, Granted):
            self.account = decision.account
            self.requests.append(Request(self.now_ns, most))

    def running(self) -> list[Request]:
        return [request for request in self.requests if request.used is None]

    def settle(self, request: Request, used: Use) -> None:
        self.account = settle(self.account, request.held, request.began_ns, used, self.now_ns)
        request.used, request.settled_ns = used, self.now_ns

    def release(self, request: Request) -> None:
        self.account = release(self.account, request.held, request.began_ns, self.now_ns)
        self.requests.remove(request)

    def check(self) -> None:
        since_ns = self.now_ns - 60 * NS
        began = [request for request in self.requests if request.began_ns > since_ns]
        within(len(began), self.limits.requests_per_minute)
        counts = [(request.used or request.held).input_tokens for request in began]
        surplus = [
            request.used.input_tokens - request.held.input_tokens
            for request in began
            if request.used and request.used.input_tokens > request.held.input_tokens
        ]
        within(sum(counts) - sum(surplus), self.limits.input_tokens_per_minute)
        held = sum(request.held.output_tokens for request in self.running())
        ended = [
            min(request.used.output_tokens, request.held.output_tokens)
            for request in self.requests
            if request.used and request.settled_ns > since_ns
        ]
        within(held + sum(ended), self.limits.output_tokens_per_minute)
        within(len(self.running()), self.limits.concurrent)
        if self.limits.budget and self.period:
            mine = [r for r in self.requests if self.period.holds(r.began_ns)]
            spent = sum(min((r.used or r.held).usd, r.held.usd) for r in mine)
            assert spent <= self.limits.budget.usd


def within(amount: int, limit: int | None) -> None:
    assert limit is None or amount <= limit


@settings(max_examples=300)
@given(all_limits, st.data())
def test_no_sixty_seconds_hold_more_than_a_limit_and_no_period_more_than_its_budget(
    limits: Limits, data: st.DataObject
) -> None:
    """But for what requests used more than they had reserved, which is taken off here."""
    today = period("day", "UTC", NOW_NS) if limits.budget else None
    world = World(limits, today)
    for _ in range(data.draw(st.integers(1, 30))):
        world.now_ns += data.draw(waits_ns)
        if today and not today.holds(world.now_ns):
            break
        running = world.running()
        match data.draw(st.sampled_from(["ask", "ask", "settle", "release"])):
            case "ask":
                world.ask(data.draw(uses))
            case "settle" if running:
                world.settle(data.draw(st.sampled_from(running)), data.draw(uses))
            case "release" if running:
                world.release(data.draw(st.sampled_from(running)))
        world.check()
    for request in world.running():
        world.release(request)
    assert world.account.open == 0
    assert world.account.held_output_tokens == 0
    assert world.account.held_usd == 0


@given(st.lists(st.tuples(uses, waits_ns), max_size=8), uses)
def test_reserving_and_releasing_leaves_the_account_as_it_was(
    before: list[tuple[Use, int]], most: Use
) -> None:
    account, now_ns = begun(Account(), DAY), NOW_NS
    for use, wait_ns in before:
        account = granted(account, Limits(), use, now_ns)
        now_ns += wait_ns
    account = begun(account, DAY, held_usd=Decimal(3), spent_usd=Decimal(4))
    budget = daily("1000")
    # The first pair lets go what has left the window; the second must change nothing at all.
    aged = release(granted(account, budget, most, now_ns), most, now_ns, now_ns)
    again = release(granted(aged, budget, most, now_ns), most, now_ns, now_ns)
    assert again == aged
    assert (aged.open, aged.held_output_tokens) == (account.open, account.held_output_tokens)
    assert (aged.held_usd, aged.spent_usd) == (account.held_usd, account.spent_usd)


@given(st.lists(st.tuples(uses, waits_ns), min_size=1, max_size=8), uses)
def test_retry_after_is_the_first_moment_at_which_the_window_has_room(
    before: list[tuple[Use, int]], most: Use
) -> None:
    limits = Limits(requests_per_minute=5, input_tokens_per_minute=150)
    account, now_ns = Account(), NOW_NS
    for use, wait_ns in before:
        decision = reserve(account, limits, use, now_ns)
        account = decision.account if isinstance(decision, Granted) else account
        now_ns += wait_ns
    refusal = reserve(account, limits, most, now_ns)
    if isinstance(refusal, Later):
        at_ns = now_ns + round(refusal.retry_after_s * NS)
        assert isinstance(reserve(account, limits, most, at_ns), Granted)
        assert isinstance(reserve(account, limits, most, at_ns - NS // 100), Later)


@given(st.lists(uses, max_size=30))
def test_a_budgets_last_dollar_is_never_passed(asked: list[Use]) -> None:
    world = World(daily("100"), DAY)
    for number, most in enumerate(asked):
        world.ask(most)
        if number % 3 == 2 and world.running():
            request = world.running()[0]
            world.settle(request, Use(0, 0, request.held.usd / 2))
        assert world.account.spent_usd + world.account.held_usd <= 100


@pytest.mark.parametrize("amount", ["0.000000001", "123456789.123456789"])
def test_money_stays_exact(amount: str) -> None:
    most = Use(0, 0, Decimal(amount))
    account = granted(Account(), daily("1000000000"), most)
    assert settle(account, most, NOW_NS, most, NOW_NS).spent_usd == Decimal(amount)
