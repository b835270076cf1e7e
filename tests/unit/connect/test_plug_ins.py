from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from importlib.metadata import EntryPoint
from typing import Any

import pytest

from millwheel.connect import plug_ins
from millwheel.connect.plug_ins import (
    as_reader,
    as_sink,
    as_source,
    as_writer,
    made_by,
    names_in,
    require,
    take_over,
)
from millwheel.connect.sinks.base import Sink, SinkBatch, SinkWriter, Writer
from millwheel.connect.sources.base import Chunk, Partition, Reader, Source
from millwheel.errors import SetupError


class Contract(ABC):
    pace = 5

    @abstractmethod
    def go(self) -> None: ...


class Goes:
    pace = 7

    def go(self) -> None: ...


def test_what_has_all_that_is_necessary_is_accepted() -> None:
    require(Goes(), Contract, "pace")


def test_what_lacks_something_is_refused_with_class_member_and_fix() -> None:
    with pytest.raises(SetupError) as caught:
        require(object(), Contract, "pace")
    assert str(caught.value) == (
        "builtins.object has no go and no pace, which each Contract needs; derive the class from "
        "millwheel.plugins.Contract, whose docstrings say what is called and when"
    )


def test_optional_members_win_over_defaults_and_missing_ones_do_not() -> None:
    class Wrapper(Contract):
        def go(self) -> None: ...

    wrapper = Wrapper()
    take_over(wrapper, object(), "pace")
    assert wrapper.pace == 5
    take_over(wrapper, Goes(), "pace")
    assert wrapper.pace == 7


def test_a_kind_is_made_by_the_package_that_registered_it(monkeypatch: pytest.MonkeyPatch) -> None:
    installed = {
        "queue": EntryPoint("queue", "json:dumps", "g"),
        "broken": EntryPoint("broken", "no_such:f", "g"),
    }
    monkeypatch.setattr(
        plug_ins,
        "entry_points",
        lambda group, name=None: [each for each in installed.values() if name in (None, each.name)],
    )
    assert names_in("g") == {"queue", "broken"}
    assert made_by("g", "sink", "queue", list, {"a": 1}) == '{"a": 1}'
    with pytest.raises(
        SetupError, match=r"the sink 'broken' \(no_such:f\) cannot be loaded: ModuleNotFoundError"
    ):
        made_by("g", "sink", "broken", list)
    with pytest.raises(ValueError, match="there is no sink 'quue'; did you mean 'queue'"):
        made_by("g", "sink", "quue", lambda: ["files", "queue"])


class OldWriter:
    def __init__(self) -> None:
        self.asked: list[object] = []

    def prepare(self, batch: SinkBatch) -> bytes:
        return b"%d" % batch.number

    def publish(self, committable: bytes) -> None:
        self.asked.append(committable)

    def sweep(self, committables: list[bytes]) -> None:
        self.asked.append(committables)

    def close(self) -> None:
        self.asked.append("closed")


class OldSink:
    flush_us = 7
    cut_records = 11

    def __init__(self) -> None:
        self.writer = OldWriter()
        self.checked = ""

    def check(self, identity: str) -> None:
        self.checked = identity

    def open(self, shard: str, token: int) -> OldWriter:
        return self.writer


def test_a_sink_with_the_methods_only_works_with_the_defaults() -> None:
    made = OldSink()
    sink = as_sink(made)
    sink.adopt("former", "root")
    sink.check("root")
    assert (sink.flush_us, sink.cut_records, made.checked) == (7, 11, "root")
    assert (sink.takes_retractions, sink.keeps_latest, sink.shows_at_once) == (False, False, False)


def test_its_writers_are_called_and_take_rows_on_the_loop() -> None:
    made = OldSink()
    writer = as_sink(made).open("s-0", 1)
    assert isinstance(writer, Writer)
    assert (writer.takes_columns, writer.publishes_aside) == (False, False)
    assert writer.prepare(SinkBatch(3, "1-1", [])) == b"3", "Cut is the earlier name of SinkBatch"
    writer.publish(b"3")
    writer.sweep([b"3"])
    writer.close()
    assert made.writer.asked == [b"3", [b"3"], "closed"]


def test_what_a_sink_and_its_writer_have_wins_over_the_defaults() -> None:
    class Adopts(OldSink):
        keeps_latest = takes_retractions = shows_at_once = True
        adopted = ""

        def adopt(self, former: str, identity: str) -> None:
            self.adopted = former + identity

    made = Adopts()
    made.writer.publishes_aside = made.writer.takes_columns = True  # type: ignore[attr-defined]
    sink = as_sink(made)
    sink.adopt("a", "b")
    writer = sink.open("s-0", 1)
    assert (sink.keeps_latest, sink.takes_retractions, sink.shows_at_once, made.adopted) == (
        True,
        True,
        True,
        "ab",
    )
    assert (writer.publishes_aside, writer.takes_columns) == (True, True)


def test_what_is_derived_is_taken_as_it_is() -> None:
    class New(Sink, Writer):
        def check(self, identity: str) -> None: ...
        def open(self, shard: str, token: int) -> Writer:
            return self

        def prepare(self, batch: SinkBatch) -> bytes:
            return b""

        def publish(self, committable: bytes) -> None: ...
        def sweep(self, committables: list[bytes]) -> None: ...

    made = New()
    assert as_sink(made) is made
    assert as_writer(made) is made
    assert SinkWriter is Writer


def test_what_cannot_be_written_to_is_refused_with_the_fix() -> None:
    with pytest.raises(SetupError, match="has no check and no open, which each Sink needs"):
        as_sink("a queue")
    with pytest.raises(
        SetupError, match=r"object has no prepare and no publish and no sweep, .*plugins\.Writer"
    ):
        as_writer(object())


class OldReader:
    def __init__(self) -> None:
        self.closed = False

    def read(self, position: int, max_records: int) -> Chunk:
        return Chunk([position + 1], ["x"], position + 1)

    def close(self) -> None:
        self.closed = True


class OldSource:
    bounded = False

    def partitions(self) -> Sequence[Partition]:
        return [Partition("p")]

    def open(self, partition: Partition) -> OldReader:
        return OldReader()


def test_a_source_with_the_methods_only_works_with_the_defaults() -> None:
    source = as_source(OldSource())
    source.warm_up()
    assert (source.bounded, source.poll_us, source.list_us) == (False, 50_000, 1_000_000)
    assert source.partitions() == [Partition("p")]


def test_its_readers_have_no_columns_and_need_no_notes() -> None:
    reader = as_source(OldSource()).open(Partition("p"))
    assert isinstance(reader, Reader)
    reader.resume([(0, b"")])
    assert reader.read_frame(0, 100) is None
    assert reader.read(3, 1).positions == [4]


def test_a_wrapped_reader_is_closed() -> None:
    made = OldReader()
    as_reader(made).close()
    assert made.closed


def test_what_a_source_has_wins_over_the_defaults_also_when_it_changes() -> None:
    class Fast(OldSource):
        poll_us = 7
        warm = 0

        def warm_up(self) -> None:
            self.warm += 1

    made = Fast()
    source = as_source(made)
    source.warm_up()
    made.bounded = True
    assert (source.poll_us, made.warm, source.bounded) == (7, 1, True)


def test_a_reader_that_resumes_and_reads_columns_is_asked() -> None:
    told: list[Any] = []

    class Whole(OldReader):
        def resume(self, notes: Any) -> None:
            told.extend(notes)

        def read_frame(self, position: int, max_bytes: int) -> Any:
            return "a frame"

    reader = as_reader(Whole())
    reader.resume([(5, b"n")])
    assert (told, reader.read_frame(0, 1)) == ([(5, b"n")], "a frame")


def test_a_source_that_is_derived_is_taken_as_it_is() -> None:
    class New(Source, Reader):
        bounded = True

        def partitions(self) -> Sequence[Partition]:
            return []

        def open(self, partition: Partition) -> Reader:
            return self

        def read(self, position: int, max_records: int) -> Chunk:
            return Chunk([], [], position)

    made = New()
    assert as_source(made) is made
    assert as_reader(made) is made


def test_what_cannot_be_read_is_refused_with_the_fix() -> None:
    with pytest.raises(
        SetupError, match=r"has no bounded and no open and no partitions, which each Source needs"
    ):
        as_source("a queue")
    with pytest.raises(SetupError, match=r"object has no read, .*millwheel\.plugins\.Reader"):
        as_reader(object())
