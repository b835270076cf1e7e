"""Named queries are followed, whatever the root does."""

from __future__ import annotations

import threading

from millwheel.core.pipeline.query_changes import QueryChanges, QueryRow
from millwheel.engine.queries import formulas
from millwheel.engine.queries.formulas import KeptTexts, literal
from millwheel.engine.queries.named_queries import NamedFollower, NamedQueries
from millwheel.engine.queries.names import Catalog
from millwheel.errors import UnavailableError


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
    assert len(formulas._literals) * 255 * 200 <= 16 << 20
