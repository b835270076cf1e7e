from __future__ import annotations

from pathlib import Path

import pytest

from millwheel.adapters.durable_store import open_journals
from millwheel.control.savepoints.comparing.kept_state import may_keep_state
from millwheel.core.formats import store_layout as layout
from millwheel.core.formats.codec import FULL_STOP, Commit, encode_batch, encode_commit
from millwheel.core.model.names import FIRST_TOKEN, groups_of, shard_name
from millwheel.core.model.records import Batch


def committed(root: Path, worker: str, node: str, *puts: tuple[bytes, bytes]) -> None:
    """A journal with one commit of a shard of ``node``."""
    writer = open_journals(str(root)).create(worker)
    writer.commit([encode_commit(Commit(shard_name(node, 0), FIRST_TOKEN, 1, list(puts), []))])
    writer.close()


def pending(stream: str) -> tuple[bytes, bytes]:
    batch = encode_batch(Batch(stream, [1], [0], ["k"], ["v"]))
    return layout.PENDING + layout.number8(1), layout.pack(["a-0", [batch]])


@pytest.mark.parametrize(
    "family", [layout.STATE, layout.TIMER, layout.WINDOW, layout.SLICE, layout.COLUMNS]
)
def test_a_node_that_stored_something_of_a_key_keeps_state_and_others_do_not(
    tmp_path: Path, family: bytes
) -> None:
    committed(tmp_path, "w1", "failing", (layout.META, b""), (layout.CHANNEL + b"x", b""))
    committed(tmp_path, "w2", "counting", (family + b"x", b""))
    keeps = may_keep_state(str(tmp_path))
    assert keeps("counting")
    assert not keeps("failing")


def test_a_computation_that_has_failed_on_every_record_keeps_nothing(tmp_path: Path) -> None:
    seen = [
        (family + b"x", b"")
        for family in (layout.SEEN, layout.RUNS, layout.POSITION, layout.JUDGED)
    ]
    committed(tmp_path, "w1", "failing", *seen, pending("dead_letters"))
    assert not may_keep_state(str(tmp_path))("failing")


def test_a_node_to_which_groups_are_on_their_way_keeps_state(tmp_path: Path) -> None:
    committed(tmp_path, "w1", "reading", pending(groups_of("summing")))
    keeps = may_keep_state(str(tmp_path))
    assert keeps("summing")
    assert not keeps("reading")


def test_a_full_stop_behind_the_commits_says_nothing_of_any_node(tmp_path: Path) -> None:
    writer = open_journals(str(tmp_path)).create("w1")
    writer.commit(
        [
            encode_commit(
                Commit(shard_name("counting", 0), FIRST_TOKEN, 1, [(layout.STATE + b"x", b"")], [])
            )
        ]
    )
    writer.commit([FULL_STOP])
    writer.close()
    keeps = may_keep_state(str(tmp_path))
    assert keeps("counting")
    assert not keeps("failing")


def test_a_journal_that_cannot_be_read_may_hold_state_of_any_node(tmp_path: Path) -> None:
    writer = open_journals(str(tmp_path)).create("w1")
    writer.commit([b"no commit"])
    writer.close()
    assert may_keep_state(str(tmp_path))("failing")
