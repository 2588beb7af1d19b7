"""Limits and money of all tenants in virtual time: `policy.limits`, reserve and settle.

Every gateway worker asks the same accounts, as they all ask one database. Budgets follow the
calendar from `setup.BEGINS_UNIX_S` on.
"""

from collections.abc import Iterable, Mapping
from decimal import Decimal

from ridgeline.serving.policy.limits import (
    ZERO,
    Account,
    Granted,
    Later,
    Limits,
    Never,
    Use,
    release,
    reserve,
    settle,
)
from ridgeline.serving.policy.periods import Period, period
from ridgeline.serving.policy.price import Price, charge, most
from ridgeline.serving.simulate.asked import Asked
from ridgeline.serving.simulate.setup import BEGINS_UNIX_S, Model, Tenant
from ridgeline.timeline import NS

_NOBODY = Tenant("")
_BEGINS_NS = BEGINS_UNIX_S * NS


class Accounts:
    """`reserve`, then `settle` or `release`; `spent_usd` is what each tenant was charged."""

    def __init__(self, tenants: Iterable[Tenant], models: Mapping[str, Model]) -> None:
        self._tenants = {tenant.name: tenant for tenant in tenants}
        self._models = models
        self._accounts = {
            name: Account() for name, tenant in self._tenants.items() if tenant.limits != Limits()
        }
        self.spent_usd: dict[str, Decimal] = {}
        self.open = 0

    def tenant(self, name: str) -> Tenant:
        """Who asks; whoever is not named has no limits."""
        return self._tenants.get(name, _NOBODY)

    def reserve(self, asked: Asked, now_ns: int) -> Later | Never | None:
        """Hold the most that it may use; the refusal where there is no room for it."""
        account = self._accounts.get(asked.tenant)
        if account is not None:
            limits = self._tenants[asked.tenant].limits
            now_ns += _BEGINS_NS
            of = _period(account, limits, now_ns)
            answer = reserve(account, limits, self._held(asked), now_ns, of)
            if not isinstance(answer, Granted):
                return answer
            self._accounts[asked.tenant] = answer.account
        asked.reserved_ns = now_ns
        self.open += 1
        return None

    def release(self, asked: Asked, now_ns: int) -> None:
        """It has used nothing."""
        self.open -= 1
        if (account := self._accounts.get(asked.tenant)) is not None:
            held = self._held(asked)
            began_ns = asked.reserved_ns
            self._accounts[asked.tenant] = release(account, held, began_ns, now_ns + _BEGINS_NS)

    def settle(self, asked: Asked, said_tokens: int, now_ns: int) -> Decimal:
        """It has used its prompt, and so much of an answer; what that costs."""
        self.open -= 1
        price = self._price(asked)
        usd = ZERO
        if price.is_something:
            usd = charge(price, asked.prompt_tokens, asked.cached_tokens, said_tokens)
            self.spent_usd[asked.tenant] = self.spent_usd.get(asked.tenant, ZERO) + usd
        if (account := self._accounts.get(asked.tenant)) is not None:
            used = Use(asked.prompt_tokens, said_tokens, usd)
            held = self._held(asked)
            began_ns = asked.reserved_ns
            after = settle(account, held, began_ns, used, now_ns + _BEGINS_NS)
            self._accounts[asked.tenant] = after
        return usd

    def _held(self, asked: Asked) -> Use:
        price = self._price(asked)
        usd = ZERO
        if price.is_something:
            usd = most(price, asked.prompt_tokens, asked.output_tokens)
        return Use(asked.prompt_tokens, asked.output_tokens, usd)

    def _price(self, asked: Asked) -> Price:
        return self._models[asked.model].price


def _period(account: Account, limits: Limits, now_ns: int) -> Period | None:
    """That of the budget around now."""
    budget = limits.budget
    if budget is None or (account.period is not None and account.period.holds(now_ns)):
        return account.period
    return period(budget.per, budget.timezone, now_ns)
