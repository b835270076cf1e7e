from __future__ import annotations

from typing import Any

import msgspec
import pytest

from millwheel.core.model.damage import checked
from millwheel.core.model.failures import (
    CHAINED_IN,
    CHAINED_OUT,
    DEAD_LETTER,
    KINDS,
    KINDS_KEPT,
    OTHER_KINDS,
    SHARE,
    STOP,
    UNIT,
    CallKind,
    FailureVerdict,
    First,
    OnError,
    Tally,
    as_counters,
    by_node,
    chained_counter,
    counted,
    firsts_in,
    kind_of,
    kinds_in,
    of_nodes,
    plain_counters,
    policy_for,
    share_text,
    tallies_in,
)
from millwheel.errors import CorruptionError, InvariantError


@pytest.mark.parametrize(
    ("policy", "tried", "failed", "verdict"),
    [
        (SHARE, 1_000, 100, FailureVerdict.FINE),
        (SHARE, 1_000, 101, FailureVerdict.BROKEN),
        (SHARE, 99, 99, FailureVerdict.EARLY),
        (SHARE, 5, 0, FailureVerdict.FINE),
        (STOP, 1_000_000, 1, FailureVerdict.BROKEN),
        (DEAD_LETTER, 1_000, 1_000, FailureVerdict.FINE),
        (OnError(0.5, 2), 2, 1, FailureVerdict.FINE),
    ],
)
def test_a_node_is_broken_when_too_large_a_share_of_enough_calls_failed(
    policy: OnError, tried: int, failed: int, verdict: FailureVerdict
) -> None:
    assert Tally(tried, failed).verdict(policy) is verdict


def test_kinds_of_failures_do_not_depend_on_the_record() -> None:
    assert kind_of("TypeError", "a.py:3 in f", "whatever 17") == "TypeError at a.py:3 in f"
    assert kind_of("", "", "timestamp 123 µs is 4 s late") == kind_of(
        "", "", "timestamp 9 µs is 77 s late"
    )
    assert kind_of("", "", "no \ud800 surrogate").encode()
    assert len(kind_of("", "", "x" * 1_000)) == 120


def test_a_shard_counts_few_kinds_by_name_and_all_of_them_in_sum() -> None:
    counters: dict[str, int] = {}
    for number in range(100):
        name = counted(f"{KINDS}kind {chr(200 + number)}", counters)
        counters[name] = counters.get(name, 0) + 1
    assert len(counters) == KINDS_KEPT + 1
    assert sum(kinds_in(counters).values()) == 100
    assert counters[OTHER_KINDS] == 80
    assert counted("records_in", counters) == "records_in"


def test_what_a_shard_reports_among_its_counters_comes_out_again() -> None:
    call, first = (
        CallKind("visits", "key of hits"),
        First("visits", "TypeError at a.py:3", "visits failed\non 3"),
    )
    counters = {"records_in": 5, **as_counters({"key of hits": 7}, {call: 2}, {"": first})}
    assert tallies_in(counters) == {call: Tally(7, 2)}
    assert firsts_in(counters) == [first]
    assert plain_counters(counters) == {"records_in": 5}


def test_shares_are_written_as_they_are_read() -> None:
    assert [share_text(share) for share in (0.1, 0.005, 0.0, 0.333)] == [
        "10%",
        "0.5%",
        "0%",
        "33.3%",
    ]


def test_a_forgotten_unit_ends_a_run_whatever_is_declared_and_one_wrong_number_does_not() -> None:
    call = CallKind("source.s", UNIT)
    for declared in (DEAD_LETTER, SHARE):
        assert Tally(100, 100).verdict(policy_for(call, declared)) is FailureVerdict.BROKEN
        assert Tally(99, 99).verdict(policy_for(call, declared)) is FailureVerdict.EARLY
        assert Tally(100, 50).verdict(policy_for(call, declared)) is FailureVerdict.FINE
    assert policy_for(CallKind("source.s", "line"), DEAD_LETTER) is DEAD_LETTER


def test_counters_of_a_chained_node_are_its_own() -> None:
    own = {chained_counter("some", name): 3 for name in ("unmatched", CHAINED_IN, CHAINED_OUT)}
    made = {"dead_letters": 1, chained_counter("made", CHAINED_OUT): 9, **own}
    assert by_node("made", own)["some"] == {"unmatched": 3, CHAINED_IN: 3, CHAINED_OUT: 3}
    assert of_nodes({"made": made, "some": {"unmatched": 2}, "none": {}}) == {
        "made": {"dead_letters": 1},
        "some": {"unmatched": 5},
        "none": {},
    }


def test_a_shard_counts_few_kinds_of_each_chained_node() -> None:
    kinds = [f"{KINDS}{number}" for number in range(KINDS_KEPT)]
    counters = dict.fromkeys([chained_counter("some", kind) for kind in kinds], 1)
    assert counted(f"{KINDS}new", counters) == f"{KINDS}new"
    new = chained_counter("some", f"{KINDS}new")
    assert counted(new, counters) == chained_counter("some", OTHER_KINDS)
    assert counted(chained_counter("other", f"{KINDS}new"), counters) != OTHER_KINDS
    assert counted(next(iter(counters)), counters) == next(iter(counters))


# damage.py


@pytest.mark.parametrize("data", [b"", b"\xff", b"[" * 100_000, b'"\xff"', b"[1"])
def test_whatever_a_decoder_finds_wrong_is_one_error_that_says_what_was_meant(data: bytes) -> None:
    with pytest.raises(CorruptionError, match=rf"^{len(data)} bytes are not a table: "):
        checked(msgspec.json.decode, "a table")(data)


def test_a_value_that_cannot_be_is_damage_too_and_a_mistake_of_ours_is_not() -> None:
    def raising(error: Exception) -> Any:
        def decode(data: bytes) -> None:
            raise error

        return decode

    with pytest.raises(CorruptionError):
        checked(raising(InvariantError("ranges overlap")), "a table")(b"")
    with pytest.raises(KeyError):
        checked(raising(KeyError("x")), "a table")(b"")


def test_good_bytes_are_what_they_are() -> None:
    assert checked(msgspec.json.decode, "a list")(b"[1, 2]") == [1, 2]
