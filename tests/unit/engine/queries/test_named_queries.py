"""Named queries are followed, whatever the root does."""

from __future__ import annotations

import threading
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from millwheel.connect.own_functions import own_function
from millwheel.core.expressions.language import Language
from millwheel.core.pipeline.query_changes import QueryChanges, QueryRow
from millwheel.core.pipeline.spec import KeptKinds, QuerySpec
from millwheel.engine.queries import named_queries
from millwheel.engine.queries.model import Query, QueryError
from millwheel.engine.queries.named_queries import (
    KeptTexts,
    NamedFollower,
    NamedFormula,
    NamedQueries,
    literal,
)
from millwheel.engine.queries.names import Catalog
from millwheel.errors import UnavailableError
from millwheel.testing import PipelineHarness


class Changes:
    def __init__(self) -> None:
        self.rows: list[QueryRow] = []
        self.away = False
        self.looked = threading.Semaphore(0)

    def read(self, known: QueryChanges | None = None) -> QueryChanges:
        try:
            if self.away:
                raise UnavailableError("the root is away")
            found = QueryChanges(len(self.rows), list(self.rows))
            return known if known is not None and known.number == found.number else found
        finally:
            self.looked.release()


def test_a_change_is_known_after_the_news_and_a_root_that_is_away_takes_nothing_back() -> None:
    named, changes = NamedQueries(), Changes()
    changes.rows.append(QueryRow("a", "x.n"))
    follower = NamedFollower(named, changes)
    follower.begin()
    assert set(named.formulas) == {"a"}
    changes.away = True
    _look(follower, changes)
    assert set(named.formulas) == {"a"}
    changes.away = False
    changes.rows.append(QueryRow("b", "x.n"))
    _look(follower, changes)
    _look(follower, changes)
    assert set(named.formulas) == {"a", "b"}
    follower.end()


def _look(follower: NamedFollower, changes: Changes) -> None:
    while changes.looked.acquire(blocking=False):
        continue
    follower.changed()
    assert changes.looked.acquire(timeout=20)


# kept_texts.py: What is kept of clients' texts has a bound of bytes.


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
    assert len(named_queries._literals) * 255 * 200 <= 16 << 20


S = 1_000_000
VALUES: dict[str, dict[str, object]] = {
    "clicks": {"n": 3, "spend": 12},
    "shown": {"n": 4},
    "none": {"n": 0, "m": None},
}


def pipeline(folder: Path) -> str:
    path = folder / "queries.yaml"
    path.write_text(
        """
pipeline: asked
streams:
  clicked: {source: {injection: {}}, timestamp: at}
  seen: {source: {injection: {}}, timestamp: at}
computations:
  clicks: {input: {clicked: {key: ad}}, slices: {every: 10s, keep: 1h}, aggregate: {n: count,
    spend: {sum: cost}}}
  views: {input: {seen: {key: ad}}, slices: {every: 10s, keep: 1h}, aggregate: {n: count}}
  site: {input: {seen: {key: [site, ad]}}, slices: {every: 1m, keep: 1h}, aggregate: {n: count}}
queries:
  ctr: {formula: clicks.n / views, window: 1m}
  cpc: {formula: clicks.spend / clicks.n, window: 1h}
  share: {formula: site / views.n, window: 1m, key: [site, ad], keys: {views: ad}}
"""
    )
    return str(path)


def test_a_named_query_asks_several_computations_and_has_a_window_of_its_own(
    tmp_path: Path,
) -> None:
    with PipelineHarness(pipeline(tmp_path)) as harness:
        for at in (5, 65, 70):
            harness.push("clicked", {"at": at * S, "ad": 1, "cost": 3})
        for at in (61, 62, 63, 64):
            harness.push("seen", {"at": at * S, "ad": 1, "site": "x" if at < 63 else "y"})
        assert harness.ask("ctr", 1, until=120 * S).values == {"ctr": 0.5}
        assert harness.ask("ctr", 1, "2m", until=120 * S).values == {"ctr": 0.75}
        assert harness.ask("cpc", 1, until=120 * S).values == {"cpc": 3}
        assert harness.ask("share", ("x", 1), until=120 * S).values == {"share": 0.5}
        with pytest.raises(QueryError, match="2 parts"):
            harness.ask("share", "x", until=120 * S)


def test_an_answer_covers_what_its_parts_cover_and_is_complete_when_they_agree(
    tmp_path: Path,
) -> None:
    with PipelineHarness(pipeline(tmp_path)) as harness:
        harness.advance_watermark(200 * S)
        answer = harness.ask("ctr", 1, until=120 * S)
        assert (answer.covered_start_us, answer.covered_end_us, answer.complete) == (
            60 * S,
            120 * S,
            True,
        )
        other = harness.ask("share", ("x", 1), until=115 * S)
        assert (other.covered_start_us, other.covered_end_us, other.complete) == (0, 115 * S, False)


def value(formula: str) -> Any:
    return NamedFormula.of(QuerySpec("q", formula)).value(VALUES)


@pytest.mark.parametrize(
    ("formula", "said"),
    [
        ("clicks.spend / clicks.n", 4),
        ("clicks.n / shown", 0.75),
        ("clicks.n / none.n", None),
        ("clicks.n // none.n", None),
        ("clicks.n % none.n", None),
        ("none.m * 2", None),
        ("none.m + clicks.n", None),
        ("round(clicks.n / shown.n, 1)", 0.8),
        ("clicks.n > 2 and shown.n > 2", True),
        ("clicks.n / none.n if none.n else 0", 0),
    ],
)
def test_values_and_null_rules(formula: str, said: Any) -> None:
    assert value(formula) == said


def test_what_is_no_number_for_another_reason_is_an_error_with_a_sentence() -> None:
    with pytest.raises(QueryError) as caught:
        value("lower(clicks.n)")
    assert caught.value.code == "bad_value"


def test_each_computation_is_asked_once() -> None:
    formula = NamedFormula.of(QuerySpec("q", "a.x / a.y + b", 60 * S))
    assert [(each.indicator, each.window_us) for each in formula.questions(Query("q", 1))] == [
        ("a", 60 * S),
        ("b", 60 * S),
    ]


KEPT = {
    "clicks": KeptKinds(("str",), {"n": "int", "spend": 2}),
    "most": KeptKinds(("str",), {"price": 4}),
}


@pytest.mark.parametrize(
    ("formula", "said"),
    [
        ("clicks.spend / clicks.n", 4.15),
        ("clicks.spend - 0.005", Decimal("12.445")),
        ("clicks.spend * most", Decimal("15.562500")),
        ("max(clicks.spend, most)", Decimal("12.4500")),
        ("clicks.n + 1", 4),
        ("str(clicks.spend)", "12.45"),
        ("clicks.spend / 0", None),
    ],
)
@pytest.mark.parametrize("spend", [1245, "12.45", Decimal("12.45")])
def test_a_formula_over_decimals_is_exact(formula: str, said: Any, spend: Any) -> None:
    """Also over what another worker has shown."""
    values = {"clicks": {"n": 3, "spend": spend}, "most": {"price": 12_500}}
    found = NamedFormula.of(QuerySpec("q", formula), KEPT).value(values)
    assert (type(found), found) == (type(said), said)


def test_decimals_beyond_64_bits_have_no_value() -> None:
    formula = NamedFormula.of(QuerySpec("q", "clicks.spend + 1"), KEPT)
    with pytest.raises(QueryError, match="beyond the 64 bits in which it is exact"):
        formula.value({"clicks": {"n": 3, "spend": 1e30}})


def test_a_named_query_calls_functions_of_the_pipeline() -> None:
    language = Language({"twice": own_function("twice", lambda value: value * 2)})
    formula = NamedFormula.of(QuerySpec("q", "twice(clicks.n)"), compile_text=language.compile)
    assert formula.value(VALUES) == 6
    failing = Language({"twice": own_function("twice", lambda value: value["x"])})
    formula = NamedFormula.of(QuerySpec("q", "twice(clicks.n)"), compile_text=failing.compile)
    with pytest.raises(QueryError, match=r"the query q has no value: twice\(\) failed: TypeError"):
        formula.value(VALUES)
