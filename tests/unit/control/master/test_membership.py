from __future__ import annotations

import pytest

from millwheel.control.master.events import Member
from millwheel.control.master.membership import Membership
from millwheel.errors import InvariantError

LATE = Member(incarnation="w1-late", address="late:1")


def collected() -> Membership:
    """The journal of a worker that nobody had heard of was found twice, sealed and collected."""
    membership = Membership()
    membership.take(())
    membership.journals_found(["w1-late"])
    membership.journals_found(["w1-late"])
    assert [effect.incarnation for effect in membership.seals(())] == ["w1-late"]
    membership.sealed("w1-late", 7)
    assert [effect.incarnation for effect in membership.collections(())] == ["w1-late"]
    return membership


def test_a_worker_that_joins_after_its_journal_was_collected_gets_nothing_and_is_removed() -> None:
    membership = collected()
    membership.take([LATE])
    assert membership.eligible() == set()
    assert [effect.incarnation for effect in membership.seals(())] == ["w1-late"]
    membership.sealed("w1-late", 7)
    assert [effect.incarnation for effect in membership.removals(())] == ["w1-late"]


def test_where_a_worker_was_is_known_until_it_is_forgotten() -> None:
    membership = Membership()
    membership.take([Member(incarnation="w1", address="here:1", host="here")])
    membership.take(())
    membership.sealed("w1", 7)
    assert membership.hosts == {"w1": "here"}
    assert [effect.incarnation for effect in membership.collections(())] == ["w1"]
    assert membership.hosts == {}


def test_those_who_die_together_are_sealed_in_the_order_of_their_names() -> None:
    names = [f"w{number}" for number in range(10, 30)]
    gone, strange, left_over = Membership(), Membership(), Membership()
    gone.take([Member(incarnation=name, address="here:1") for name in reversed(names)])
    gone.take(())
    strange.declare_absent_dead(set(names))
    for _ in range(2):
        left_over.journals_found(names)
    for membership in (gone, strange, left_over):
        assert [effect.incarnation for effect in membership.seals(())] == names


def test_the_journals_for_which_shards_wait_are_sealed_before_all_others() -> None:
    membership = Membership()
    for name in ("spare", "owner", "another"):
        membership.declare_dead(name, "refused")
    seals = list(membership.seals({"owner"}))
    assert [(seal.incarnation, seal.urgent) for seal in seals] == [
        ("owner", True),
        ("spare", False),
        ("another", False),
    ]


def test_a_journal_has_one_end() -> None:
    membership = Membership()
    for _ in range(2):
        membership.sealed("w1", 7)
    with pytest.raises(InvariantError, match="was sealed at 7, and now at 9"):
        membership.sealed("w1", 9)
