"""Plug-ins that were written before there were base classes, with their methods only."""

from __future__ import annotations

import pytest

from millwheel.connect.sinks.adapter import as_sink, as_writer
from millwheel.connect.sinks.base import Sink, SinkBatch, SinkWriter, Writer
from millwheel.errors import SetupError


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
