"""What is kept of clients' texts has a bound of bytes."""

from __future__ import annotations

from millwheel.engine.queries import formulas
from millwheel.engine.queries.formulas import KeptTexts, literal
from millwheel.engine.queries.names import Catalog


def test_more_than_all_may_be_is_forgotten() -> None:
    kept: KeptTexts[str, int] = KeptTexts(10_000)
    for number in range(1_000):
        kept.keep(str(number), number, 800)
        assert len(kept) <= 10
        assert kept.get(str(number)) == number
    kept.keep("large", 1, 20_000)
    assert kept.get("large") is None


def test_long_names_and_formulas_are_kept_in_fewer_numbers() -> None:
    catalog = Catalog({"clicks": "str"}, frozenset({"clicks"}))
    for number in range(4_000):
        catalog.plan(b"clicks:%d%s:3h" % (number, b"x" * 3_900))
    assert len(catalog._plans) * 4_000 * 3 <= 32 << 20
    for number in range(200):
        literal(f"clicks.n + {number} + " + "+".join(["1"] * 120))
    assert len(formulas._literals) * 255 * 200 <= 16 << 20
