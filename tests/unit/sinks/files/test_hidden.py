"""Hidden files of sinks: whose they are is in their names."""

from __future__ import annotations

from millwheel.sinks.files.hidden import hidden_name, left_behind


def test_a_sweep_finds_what_former_owners_of_the_shard_left_and_nothing_else() -> None:
    former = [hidden_name("sink.out-1", 3, "1-7"), hidden_name("sink.out-1", 3, "2-0").replace(".tmp", "-ab12.tmp")]
    others = [
        hidden_name("sink.out-1", 3, "3-1"),
        hidden_name("sink.out-1", 3, "4-1"),
        hidden_name("sink.out-11", 3, "1-7"),
        "part-sink.out-1-00000003.jsonl",
    ]
    assert left_behind([*others, *former], "sink.out-1", 3) == former
