from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from millwheel.control.master.tables.spares import HostLoss, exposed, losses, seated

HOSTS = st.dictionaries(
    st.sampled_from([f"w{n}" for n in range(9)]), st.sampled_from(["h1", "h2", "h3"]), min_size=1
)


def alone(*names: str) -> dict[str, str]:
    return dict.fromkeys(names, "h1")


def test_owners_keep_their_seats_and_the_others_stand_by() -> None:
    assert seated(alone("w1", "w2", "w3"), {"w2": 4, "w3": 4}, 2, ()) == {"w2", "w3"}


def test_a_free_seat_goes_to_a_spare() -> None:
    assert seated(alone("w2", "w3"), {"w1": 4, "w2": 4}, 2, ["h1"]) == {"w2", "w3"}


def test_when_seats_are_taken_away_who_has_the_fewest_shards_stands_by() -> None:
    assert seated(alone("w1", "w2", "w3"), {"w1": 2, "w2": 1, "w3": 2}, 2, ()) == {"w1", "w3"}


def test_a_spare_on_another_host_is_preferred_to_one_where_a_worker_has_just_died() -> None:
    hosts = {"w2": "h2", "s1": "h1", "s2": "h2"}
    assert seated(hosts, {"w2": 4}, 2, ["h1"]) == {"w2", "s2"}


def test_spares_are_left_where_they_cover_the_loss_of_any_host() -> None:
    hosts = {"a": "h1", "b": "h1", "c": "h2", "d": "h2"}
    serving = seated(hosts, {}, 2, ())
    assert exposed(hosts, serving, hosts.keys() - serving) <= 0


def test_a_loss_that_spares_elsewhere_cannot_make_up_for_is_counted() -> None:
    assert exposed({"a": "h1", "b": "h1", "s": "h1"}, ["a", "b"], ["s"]) == 2
    assert exposed({"a": "h1", "b": "h2", "s": "h3"}, ["a", "b"], ["s"]) == 0
    assert exposed({}, [], []) == 0


def test_the_worst_loss_comes_first_and_names_its_host() -> None:
    hosts = {"a": "h1", "b": "h1", "c": "h2", "s": "h3"}
    assert losses(hosts, ["a", "b", "c"], ["s"]) == [HostLoss("h1", 2, 1), HostLoss("h2", 1, 1)]


@given(hosts=HOSTS, burdens=st.dictionaries(st.sampled_from([f"w{n}" for n in range(9)]),
st.integers(0, 5)),
       seats=st.integers(1, 9), suspects=st.sets(st.sampled_from(["h1", "h2"])))  # fmt: skip
def test_seats_are_filled_as_far_as_there_are_workers_and_owners_come_first(
    hosts: dict[str, str], burdens: dict[str, int], seats: int, suspects: set[str]
) -> None:
    serving = seated(hosts, burdens, seats, suspects)
    owners = {name for name in hosts if burdens.get(name)}
    assert len(serving) == min(seats, len(hosts))
    assert serving <= hosts.keys()
    assert serving <= owners or owners <= serving


@given(each=st.integers(1, 4), count=st.integers(2, 4))
def test_with_a_host_more_than_is_needed_the_loss_of_any_host_is_covered(
    each: int, count: int
) -> None:
    hosts = {f"w{host}-{n}": f"h{host}" for host in range(count) for n in range(each)}
    serving = seated(hosts, {}, each * (count - 1), ())
    assert exposed(hosts, serving, hosts.keys() - serving) <= 0
