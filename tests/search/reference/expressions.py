"""Expressions with functions, computed by other means than the product's: decimals, fractions,
datetimes and texts."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime, timedelta
from decimal import Decimal
from fractions import Fraction
from typing import Any

from millwheel.core.expressions.language import compile_expression

_EPOCH = datetime(1970, 1, 1)

CALCULATIONS: Mapping[str, Callable[[int], Any]] = {
    "mod(n - 3, 4)": lambda n: int(Decimal(n - 3) % 4),
    "quotient(n - 3, 2)": lambda n: int(Decimal(n - 3) // 2),
    "(n - 3) % 4 + n // -2": lambda n: ((n - 3) & 3) + Fraction(n, -2).__floor__(),
    "max(n, 3) - abs(n - 5)": lambda n: sorted([n, 3])[1] - sorted([n - 5, 5 - n])[1],
    "floor(n / 4) + len(concat(str(n), '!'))": lambda n: Fraction(n, 4).__floor__() + len(f"{n}!"),
    "day_of_week(n * 86400000000)": lambda n: (_EPOCH + timedelta(days=n)).isoweekday(),
    "month(n * 8640000000000, 'Asia/Tokyo')": lambda n: (
        (_EPOCH + timedelta(days=100 * n, hours=9)).month
    ),
}
"""Of a whole number ``n`` that is not large."""
CONDITIONS: Mapping[str, Callable[[int], Any]] = {
    "mod(n, 3) == 1": lambda n: Decimal(n) % 3 == 1,
    "between(n, 1, 5) or like(str(n), '1%')": lambda n: n in range(1, 6) or f"{n}"[0] == "1",
}


def evaluated(text: str) -> Callable[[Any], Any]:
    """A record's value -> the value of the expression. Records without such an ``n`` are the
    product's: how it refuses them is tested elsewhere."""
    plain = CALCULATIONS.get(text) or CONDITIONS.get(text)
    otherwise = compile_expression(text).evaluate

    def run(value: Any) -> Any:
        n = value.get("n") if isinstance(value, dict) else getattr(value, "n", None)
        if plain is None or type(n) is not int or abs(n) >= 10_000:
            return otherwise(value)
        return plain(n)

    return run
