from __future__ import annotations

import random

import pytest

from millwheel.engine.workers.recovery.write_behind import WriteBehindStore
from tests.fakes.plain_storage import SimStore


def test_reads_scans_and_checkpoints_see_what_waits() -> None:
    under = SimStore({b"a": b"0", b"b": b"0", b"c": b"0"})
    store = WriteBehindStore(under)
    store.apply([(b"a", b"1"), (b"d", b"1")], [b"b"])
    assert dict(under.scan(b"")) == {b"a": b"0", b"b": b"0", b"c": b"0"}
    assert [store.get(key) for key in (b"a", b"b", b"c", b"d", b"e")] == [
        b"1",
        None,
        b"0",
        b"1",
        None,
    ]
    assert store.get_many([b"a", b"b", b"c", b"e"]) == [b"1", None, b"0", None]
    assert list(store.scan(b"")) == [(b"a", b"1"), (b"c", b"0"), (b"d", b"1")]
    store.apply([(b"c", b"2")], [])
    store.delete_range(b"a", b"b")
    assert dict(under.scan(b"")) == {b"c": b"2", b"d": b"1"}


@pytest.mark.parametrize("seed", range(5))
def test_it_behaves_as_the_store_behind_it(seed: int) -> None:
    rng = random.Random(seed)
    plain, store = SimStore({}), WriteBehindStore(SimStore({}))
    names = [bytes([letter]) for letter in range(97, 107)]
    for _ in range(300):
        puts = [(rng.choice(names), b"%d" % rng.randrange(9)) for _ in range(rng.randrange(4))]
        deletes = [name for name in rng.sample(names, 2) if name not in dict(puts)]
        for each in (plain, store):
            each.apply(puts, deletes)
        wanted = rng.sample(names, 4)
        assert (
            store.get_many(wanted) == plain.get_many(wanted) == [store.get(name) for name in wanted]
        )
        if rng.random() < 0.1:
            assert list(store.scan(b"")) == list(plain.scan(b""))


def test_commits_of_many_entries_and_of_few_are_written_in_their_order() -> None:
    under = SimStore({})
    store = WriteBehindStore(under)
    store.apply([(b"a", b"1"), (b"b", b"1")], [])
    store.apply([(b"%d" % number, b"") for number in range(5_000)] + [(b"a", b"2")], [b"b"])
    assert (under.get(b"a"), under.get(b"b")) == (b"2", None)
    store.apply([(b"a", b"3")], [])
    assert (store.get(b"a"), store.get(b"b"), store.get(b"7")) == (b"3", None, b"")


def test_a_large_commit_does_not_wait() -> None:
    under = SimStore({})
    WriteBehindStore(under).apply([(b"a", bytes(2 << 20))], [])
    assert under.get(b"a") is not None
