"""Money and limits of tenants in whole simulations."""

from decimal import Decimal

from worlds import model

from ridgeline.serving.policy.limits import Budget, Limits
from ridgeline.serving.policy.price import Price
from ridgeline.serving.simulate.asked import End
from ridgeline.serving.simulate.clients import OpenLoop
from ridgeline.serving.simulate.setup import Serving, Tenant
from ridgeline.serving.simulate.world import simulate
from ridgeline.workload import Request

DAY_S = 86_400
#: A dollar for a million tokens of either kind.
PRICED = model(price=Price(Decimal(1), Decimal(1), Decimal(1)))


def spent(budget: Budget | None, days: int) -> tuple[int, int, Decimal]:
    """Twenty requests of 100 and 20 tokens a day: how many were answered, refused, and paid for."""
    requests = [
        Request(day * DAY_S + 600.0 * number, 100, 20, tenant="shop")
        for day in range(days)
        for number in range(20)
    ]
    serving = Serving((PRICED,), (Tenant("shop", limits=Limits(budget=budget)),))
    outcome = simulate(serving, OpenLoop(requests, "chat"))
    return outcome.count(End.ANSWERED), outcome.count(End.REFUSED), outcome.spent_usd["shop"]


def test_a_budget_of_a_day_begins_anew_at_midnight():
    each = Decimal(120) / 1_000_000
    assert spent(None, 3) == (60, 0, 60 * each)
    assert spent(Budget(5 * each, "day", "UTC"), 3) == (15, 45, 15 * each)
    assert spent(Budget(5 * each, "month", "UTC"), 3) == (5, 55, 5 * each)


def test_midnight_is_that_of_the_budgets_zone():
    """It begins on a Monday at 00:00 UTC, 01:00 in Berlin, and the second day there at 23:00."""
    each = Decimal(120) / 1_000_000
    requests = [Request(hour * 3600.0, 100, 20, tenant="shop") for hour in (0, 22.5, 23.5)]
    found = {}
    for zone in ("UTC", "Europe/Berlin"):
        limits = Limits(budget=Budget(each, "day", zone))
        serving = Serving((PRICED,), (Tenant("shop", limits=limits),))
        found[zone] = simulate(serving, OpenLoop(requests, "chat")).count(End.ANSWERED)
    assert found == {"UTC": 1, "Europe/Berlin": 2}
