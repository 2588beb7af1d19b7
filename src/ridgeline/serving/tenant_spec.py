"""Tenants, limits, budgets and prices as they stand in platform.yaml and in the admin API."""

from decimal import Decimal
from typing import Annotated, Literal, Self

from pydantic import BeforeValidator, Field, model_validator

from ridgeline.serving.policy.limits import Budget, Limits
from ridgeline.serving.policy.price import Price
from ridgeline.serving.schedule import check_timezone
from ridgeline.serving.spec_part import Part
from ridgeline.units import parse_count

#: A tenant's name: it stands in labels, logs and addresses.
TENANT_NAME = r"^[a-z0-9]([a-z0-9._-]*[a-z0-9])?$"

PriorityClass = Literal["system", "interactive", "default", "bulk"]
Count = Annotated[int, BeforeValidator(parse_count), Field(gt=0)]
#: Nine places: a nano-dollar is the smallest amount that is kept.
Usd = Annotated[Decimal, Field(ge=0, max_digits=18, decimal_places=9)]


class BudgetSpec(Part):
    """Money for a calendar day or month."""

    usd: Annotated[Usd, Field(gt=0)]
    per: Literal["day", "month"] = Field("month", description="when it begins anew")
    timezone: str = Field("UTC", description="whose midnight counts, e.g. Europe/Berlin")

    @model_validator(mode="after")
    def _zone_exists(self) -> Self:
        check_timezone(self.timezone)
        return self


class LimitsSpec(Part):
    """What a tenant or a key may use; what is not named has no limit."""

    requests_per_minute: Count | None = Field(None, description="in any 60 seconds")
    input_tokens_per_minute: Count | None = Field(None, description="in any 60 seconds")
    output_tokens_per_minute: Count | None = Field(None, description="in any 60 seconds")
    concurrent: Count | None = Field(None, description="requests at once")
    budget: BudgetSpec | None = None

    @property
    def limits(self) -> Limits:
        """As the policy reckons with them."""
        given = self.budget
        return Limits(
            self.requests_per_minute,
            self.input_tokens_per_minute,
            self.output_tokens_per_minute,
            self.concurrent,
            Budget(given.usd, given.per, given.timezone) if given is not None else None,
        )


class TenantSpec(Part):
    """Who asks: a team, a product, a customer."""

    name: str = Field(pattern=TENANT_NAME, max_length=63)
    priority_class: PriorityClass = Field("default", alias="class", description="who goes first")
    weight: float = Field(1.0, ge=0.001, le=1000, description="share among the tenants of a class")
    limits: LimitsSpec = Field(default_factory=LimitsSpec)
    budget: BudgetSpec | None = None

    @property
    def all_limits(self) -> LimitsSpec:
        """The limits with the budget among them."""
        if self.budget is None:
            return self.limits
        return self.limits.model_copy(update={"budget": self.budget})


class PriceSpec(Part):
    """What tenants are charged, in US dollars for a million tokens."""

    input: Usd = Field(Decimal(0), description="of a prompt that is not in the cache")
    cached_input: Usd | None = Field(None, description="of a prompt's cached part; as `input`")
    output: Usd = Field(Decimal(0), description="of an answer")

    @property
    def price(self) -> Price:
        """As the policy reckons with it."""
        cached = self.input if self.cached_input is None else self.cached_input
        return Price(self.input, cached, self.output)
