from __future__ import annotations

import pytest

from millwheel.connect.sources.base import Partition
from millwheel.core.formats.store_layout import Position
from millwheel.core.model.times import MIN_TIME, SECOND
from millwheel.engine.workers.delivery.outbox import OutputChunk
from millwheel.engine.workers.sources.completion import ReadAhead
from millwheel.engine.workers.sources.partition import Outstanding, Part, open_part
from millwheel.engine.workers.sources.silence import Silence
from millwheel.engine.workers.state.overlay import Overlay
from millwheel.errors import InvariantError
from tests.fakes.plain_storage import SimStore


def part(store: SimStore, name: str = "a", certain: bool = False) -> Part:
    return open_part(Partition(name), f"source.s/{name}", store, Silence(SECOND, 0), certain)


def committed(store: SimStore, one: Part, position: int, finished: bool = False) -> None:
    overlay = Overlay(store)
    one.commit(Position(position, 70, finished, b"note"), overlay)
    store.apply(*overlay.take())


def test_a_new_partition_begins_at_its_start_and_holds_everything() -> None:
    one = part(SimStore({}))
    assert (one.position, one.read_all, one.notes()) == (0, False, [(0, b"")])
    assert one.standing(10) == (MIN_TIME, False)


def test_the_next_owner_goes_on_where_the_commit_was() -> None:
    store = SimStore({})
    committed(store, part(store), 5)
    later = part(store)
    assert (later.position, later.max_timestamp, later.note, later.certain) == (
        5,
        70,
        b"note",
        False,
    )
    assert later.standing(10)[0] == 60
    assert part(store, "b").position == 0


def test_what_was_finished_stays_finished_and_nobody_can_have_read_further() -> None:
    store = SimStore({})
    committed(store, part(store), 5, finished=True)
    later = part(store)
    assert (later.read_all, later.certain) == (True, True)


def test_judgements_count_until_their_position_is_committed() -> None:
    store = SimStore({})
    one, overlay = part(store), Overlay(store)
    one.judge([3, 8], overlay)
    store.apply(*overlay.take())
    assert part(store).judged == {3, 8}
    committed(store, one, 3)
    assert part(store).judged == one.judged == {8}


def test_a_decision_about_what_follows_a_position_is_kept_when_that_position_is_committed() -> None:
    """The note of the position is older: without the decision a reader that begins there would
    decide again."""
    store = SimStore({})
    one, overlay = part(store), Overlay(store)
    one.decide(5, b"next", overlay)
    one.decide(9, b"last", overlay)
    store.apply(*overlay.take())
    committed(store, one, 5)
    assert part(store).notes() == [(5, b"note"), (5, b"next"), (9, b"last")]
    committed(store, one, 6)
    assert part(store).notes() == [(6, b"note"), (9, b"last")]


def test_a_read_is_applied_once_all_consumers_have_all_of_it() -> None:
    chunks = [OutputChunk(number, "c", [], 0, stored=False, read=True) for number in (1, 2)]
    read = Outstanding(chunks, Position(), {})
    chunks[0].finished = True
    assert not read.applied
    chunks[1].finished = True
    assert read.applied


def test_a_partition_with_reads_on_their_way_is_not_idle() -> None:
    one = part(SimStore({}))
    for second in range(1, 4):
        one.silence.nothing(second * SECOND)
    assert one.idle
    one.outstanding.append(Outstanding([], Position(), {}))
    assert not one.idle


def test_a_partition_is_read_ahead_of_its_consumers_by_so_much() -> None:
    one = part(SimStore({}))
    one.ahead = ahead = ReadAhead(100)
    chunk = OutputChunk(1, "c", [], 0, stored=False, read=True)
    one.outstanding.append(Outstanding([chunk], Position(), {}, records=60))
    assert (one.waiting, ahead.has_room(60), one.most_records(20_000)) == (60, True, 50)
    one.outstanding.append(Outstanding([chunk], Position(), {}, records=60))
    assert not ahead.has_room(one.waiting)
    chunk.finished = True
    assert ahead.has_room(one.waiting)
    one.note_size(1_000, 10)
    assert one.most_bytes == 50 * 100


@pytest.mark.parametrize(("position", "finished"), [(4, False), (6, False)])
def test_a_position_never_falls_and_an_end_stays_one(position: int, finished: bool) -> None:
    store = SimStore({})
    one = part(store)
    committed(store, one, 5, finished=position > 5)
    with pytest.raises(InvariantError, match="would fall from 5"):
        committed(store, one, position, finished)
