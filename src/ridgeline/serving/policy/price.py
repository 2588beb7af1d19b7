"""What a request costs its tenant. Pure; money is `Decimal`, in US dollars."""

from dataclasses import dataclass
from decimal import ROUND_HALF_EVEN, Context, Decimal

_TOKENS = 1_000_000
_NANO = Decimal("1e-9")
#: Exact for any price of 18 digits times any number of tokens; the caller's context does not count.
_EXACT = Context(prec=60, rounding=ROUND_HALF_EVEN)


@dataclass(frozen=True, slots=True)
class Price:
    """For a million tokens: of a prompt, of its part that was in the cache, of an answer."""

    input_usd: Decimal
    cached_input_usd: Decimal
    output_usd: Decimal

    @property
    def is_something(self) -> bool:
        """Whether anything costs anything."""
        return any((self.input_usd, self.cached_input_usd, self.output_usd))


def charge(price: Price, input_tokens: int, cached_tokens: int, output_tokens: int) -> Decimal:
    """The cost, rounded once, to the nano-dollar, half to even.

    A prompt's cached part is paid at its own price and not at the other one too. A price of zero
    is a price. Who says that more was cached than the prompt has is not believed.
    """
    cached = min(cached_tokens, input_tokens)
    parts = (
        (price.input_usd, input_tokens - cached),
        (price.cached_input_usd, cached),
        (price.output_usd, output_tokens),
    )
    sum_usd = Decimal(0)
    for usd, tokens in parts:
        sum_usd = _EXACT.fma(usd, tokens, sum_usd)
    return _EXACT.quantize(_EXACT.divide(sum_usd, _TOKENS), _NANO)


def most(price: Price, input_tokens: int, output_tokens: int) -> Decimal:
    """The most that a request of this size can cost, wherever its prompt comes from."""
    cached_tokens = input_tokens if price.cached_input_usd > price.input_usd else 0
    return charge(price, input_tokens, cached_tokens, output_tokens)
