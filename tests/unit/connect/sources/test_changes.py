"""Two records at one place of the input."""

from __future__ import annotations

import pytest

from millwheel.connect.sources.base import Chunk, Reader, Reject
from millwheel.connect.sources.changes import ChangesReader
from millwheel.errors import InvariantError

LOG = [["a"], ["-a", "b"], None, ["-b"], ["c"]]


class Log(Reader):
    """The entries of LOG; None is none."""

    def __init__(self) -> None:
        self.resumed: list[tuple[int, bytes]] = []
        self.stops_at: tuple[int, ...] = ()

    def stop_at(self, end: tuple[int, ...]) -> None:
        self.stops_at = end

    def reached(self, position: int) -> bool:
        return position >= self.stops_at[0]

    def resume(self, notes: object) -> None:
        self.resumed = list(notes)  # type: ignore[call-overload]

    def read(self, position: int, max_records: int) -> Chunk:
        found = Chunk([], [], position)
        for index, entry in enumerate(LOG[position : position + max_records], position + 1):
            found.next_position = index
            if entry is None:
                found.rejects.append(Reject(index, "", "bad"))
            else:
                found.positions.append(index)
                found.values.append(entry)
        found.finished = found.next_position == len(LOG)
        return found


@pytest.mark.parametrize("size", [1, 2, 4, 100])
def test_positions_rise_and_reading_goes_on_at_each_of_them(size: int) -> None:
    reader, position, found = ChangesReader(Log()), 0, []
    while True:
        chunk = reader.read(position, size)
        told = [
            *zip(chunk.positions, chunk.values, strict=True),
            *((each.position, each.reason) for each in chunk.rejects),
        ]
        assert all(position < at <= chunk.next_position for at, _ in told)
        found += sorted(told)
        position = chunk.next_position
        if chunk.finished:
            break
    assert found == [(2, "a"), (3, "-a"), (4, "b"), (6, "bad"), (8, "-b"), (10, "c")]


def test_a_reader_that_is_to_stop_does() -> None:
    log = Log()
    reader = ChangesReader(log)
    reader.stop_at((3, 4))
    assert log.stops_at == (3, 4)
    assert (reader.reached(4), reader.reached(6)) == (False, True)


def test_notes_are_about_the_places_of_the_input() -> None:
    log = Log()
    ChangesReader(log).resume([(8, b""), (0, b"begin")])
    assert log.resumed == [(4, b""), (0, b"begin")]


def test_reading_never_begins_within_a_message() -> None:
    with pytest.raises(InvariantError, match="within the changes"):
        ChangesReader(Log()).read(3, 1)
