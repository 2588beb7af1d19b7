from decimal import Decimal
from fractions import Fraction

from hypothesis import given
from hypothesis import strategies as st

from ridgeline.serving.policy.price import Price, charge, most

PRICE = Price(Decimal("3"), Decimal("0.3"), Decimal("15"))
FREE = Decimal(0)
tokens = st.integers(0, 10_000_000)
usd = st.decimals(0, 10_000, places=9)


def test_a_prompts_cached_part_is_paid_once_at_its_own_price() -> None:
    # 400 of 1,000 at the full price, 600 at a tenth, and 200 out: 1.2 + 0.18 + 3 thousandths.
    assert charge(PRICE, 1_000, 600, 200) == Decimal("0.00438")


def test_a_price_of_zero_is_a_price() -> None:
    assert charge(Price(FREE, FREE, FREE), 10**9, 0, 10**9) == 0
    assert charge(Price(Decimal(1), FREE, FREE), 1_000_000, 1_000_000, 5) == 0


def test_it_is_rounded_once_and_to_the_nano_dollar_half_to_even() -> None:
    # 0.0005 USD for a million: a token is half a nano-dollar.
    half = Decimal("0.0005")
    assert charge(Price(half, FREE, FREE), 1, 0, 0) == 0
    assert charge(Price(half, FREE, FREE), 3, 0, 0) == Decimal("2e-9")
    # Two halves are a whole: rounded each for itself they would be nothing.
    assert charge(Price(half, FREE, half), 1, 0, 1) == Decimal("1e-9")


def test_more_cached_than_there_is_prompt_is_not_believed() -> None:
    assert charge(PRICE, 10, 50, 0) == charge(PRICE, 10, 10, 0)


@given(st.builds(Price, usd, usd, usd), tokens, tokens, tokens)
def test_it_is_exact_to_half_a_nano_dollar_and_never_above_the_most(
    price: Price, input_tokens: int, cached_tokens: int, output_tokens: int
) -> None:
    cost_usd = charge(price, input_tokens, cached_tokens, output_tokens)
    cached = min(input_tokens, cached_tokens)
    exact = (
        Fraction(price.input_usd) * (input_tokens - cached)
        + Fraction(price.cached_input_usd) * cached
        + Fraction(price.output_usd) * output_tokens
    ) / 1_000_000
    assert abs(Fraction(cost_usd) - exact) <= Fraction(1, 2 * 10**9)
    assert cost_usd <= most(price, input_tokens, output_tokens)
