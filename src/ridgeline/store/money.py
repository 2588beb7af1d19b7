"""Money in a column: a `Decimal` in Python, whole nano-dollars in the database."""

from decimal import Decimal

from sqlalchemy import BigInteger, Dialect
from sqlalchemy.types import TypeDecorator

NANO = Decimal("1e-9")


class NanoUsd(TypeDecorator[Decimal]):
    """US dollars to the billionth, up to nine billion of them, exact on every database.

    SQLite has no decimal type (it would keep a float), hence a whole number. A price of
    0.001 USD for a million tokens is still a whole number of these for each token.
    """

    impl = BigInteger
    cache_ok = True

    def process_bind_param(self, value: Decimal | None, dialect: Dialect) -> int | None:  # noqa: ARG002
        """Nano-dollars; ValueError where the amount is finer than that."""
        if value is None:
            return None
        nano = value / NANO
        if nano != nano.to_integral_value():
            raise ValueError(f"{value} USD is finer than a nano-dollar: round it first")
        return int(nano)

    def process_result_value(self, value: int | None, dialect: Dialect) -> Decimal | None:  # noqa: ARG002
        """Dollars."""
        return None if value is None else Decimal(value) * NANO
