"""The further guarantees of sinks for other systems: see docs/connectors.md, The protocol of
external sinks."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from millwheel.connect.connectors.external import absence
from millwheel.connect.connectors.external.sink import ExternalSink
from millwheel.connect.sinks.base import Sink
from millwheel.errors import FencedError, SetupError, UnavailableError
from millwheel.tools.testing.contracts.outside import Killed, Outside, kill
from millwheel.tools.testing.contracts.sinks import SinkContract
from millwheel.tools.testing.contracts.worlds import SHARD, ShardLife, SinkWorld

_AWAY_TRIES = 20  # enough to notice a warning that is repeated on every try


class ExternalSinkContract(SinkContract):
    """For targets with transactions. For one without, set ``fences`` to False."""

    fences = True
    """Whether a former owner is unable to write once a newer one has accessed the target."""
    every_refused = 0
    """As ``every``, for the checks with refused rows, which take more calls. 0: the same as
    ``every``."""

    def nameless(self, world: SinkWorld) -> Sink:
        """A sink without the identity of a root."""
        sink = world.sink(Outside())
        sink.identity = ""
        return sink

    @contextmanager
    def life(self, batches: int = 0) -> Iterator[ShardLife]:
        with super().life(batches) as life:
            life.world = _WithoutPauses(life.world)
            yield life

    def test_a_sink_without_its_root_is_refused(self) -> None:
        with self.life() as life:
            try:
                self.nameless(life.world).open(SHARD, 1)
            except SetupError:
                return
        raise AssertionError(
            "a sink without identity was opened: two runs would take their rows for the same"
        )

    def test_a_higher_token_shuts_out_the_former_owner(self) -> None:
        if not self.fences:
            return
        with self.life(3) as life:
            old = life.writer(Outside())
            for _ in range(2):
                life.prepare(old)
            life.publish(old, 0)
            successor = life.writer(Outside())
            life.publish(successor, 0)  # publishes nothing new, but fences the former owner
            visible = life.world.rows()
            for _ in range(2):
                _fenced(lambda: old.publish(life.committables[1]))
            assert life.world.rows() == visible, (
                "a former owner wrote after its successor had asked the target"
            )
            life.publish(successor, 1)
            life.prepare(successor)
            life.publish(successor, 2)
            _fenced(lambda: old.publish(life.committables[2]))
            self.expect(life, "a former owner was shut out")

    def test_a_target_that_is_away_stops_nobody_else_and_loses_nothing(self) -> None:
        with self.life(3) as life, _sentences() as sentences:
            outside = Outside()
            writer = life.writer(outside)
            assert writer.publishes_aside, "it would hold up the worker's loop: set publishes_aside"
            assert writer.lane, "it would hold up other sinks: give the writer a lane of its own"
            life.prepare(writer)
            life.publish(writer, 0)
            outside.away = life.world.lost
            life.prepare(writer)
            life.prepare(writer)
            for _ in range(_AWAY_TRIES):
                _unavailable(lambda: writer.publish(life.committables[1]))
            assert len(sentences) == 1, (
                f"one sentence a minute reports that the target is away, not {sentences or 'none'}"
            )
            outside.away = None
            for number in (1, 2):
                life.publish(writer, number)
            self.expect(life, "the target was away for a while")

    def test_a_refused_row_is_one_dead_letter_and_the_others_are_written(self) -> None:
        with self.life() as life:
            if life.world.refused() is None:
                return
            self._with_refused(life)
            outside = Outside()
            life.owned(outside)
            self._refused_once(life, "without faults")
            calls = outside.calls

        def crash(number: int, when: str) -> None:
            with self.life() as life:
                self._with_refused(life)
                self._crashes(life, when, number)
                life.owned(Outside())
                self._refused_once(life, f"a crash {when} call {number} ({calls[number]})")

        numbers = range(0, len(calls), self.every_refused or self.every)
        self.side_by_side(
            crash, ((number, when) for number in numbers for when in ("before", "after"))
        )

    def test_a_crash_between_a_refusal_and_the_rest_of_the_batch_keeps_both(self) -> None:
        with self.life() as life:
            if life.world.refused() is None:
                return
            self._with_refused(life)
            writer = life.writer(Outside())
            life.prepare(writer)
            try:
                life.publish(writer, 0, kill)
            except Killed:
                assert life.world.rows() == [], (
                    "rows were written before the dead letter was committed"
                )
            life.owned(Outside())
            self._refused_once(life, "a crash after the commit of the letter")

    def _with_refused(self, life: ShardLife) -> None:
        refused = life.world.refused()
        assert refused is not None
        life.values.insert(1, refused[0])

    def _refused_once(self, life: ShardLife, where: str) -> None:
        refused = life.world.refused()
        assert refused is not None
        value, words = refused
        self.expect(life, where, [value])
        assert words in life.letters[0].reason, (
            f"{where}: {life.letters[0].reason!r} lacks the target's {words!r}"
        )


class _WithoutPauses(SinkWorld):
    """A world whose sinks do not pause between attempts."""

    def __init__(self, inner: SinkWorld) -> None:
        self._inner = inner

    def sink(self, outside: Outside) -> Sink:
        sink = self._inner.sink(outside)
        if isinstance(sink, ExternalSink):
            sink.longest_wait_s = 0.0
        return sink

    def rows(self) -> list[Any]:
        return self._inner.rows()

    def value(self, batch: int, row: int) -> Any:
        return self._inner.value(batch, row)

    def refused(self) -> tuple[Any, str] | None:
        return self._inner.refused()

    def lost(self) -> Exception:
        return self._inner.lost()

    def close(self) -> None:
        self._inner.close()


def _fenced(publish: Callable[[], object]) -> None:
    for _ in range(5):
        try:
            publish()
        except FencedError:
            return
        except UnavailableError:
            continue
        break
    raise AssertionError("a former owner was not shut out: its publish must raise FencedError")


def _unavailable(publish: Callable[[], object]) -> None:
    try:
        publish()
    except UnavailableError:
        return
    except Exception as ex:
        raise AssertionError(
            "publish must raise UnavailableError while the target is away, or the worker ends:"
            f" {type(ex).__name__}"
        ) from ex
    raise AssertionError("publish returned although the target is away: its rows are lost")


@contextmanager
def _sentences() -> Iterator[list[str]]:
    """Collects the warnings that are logged, as in a new process."""
    sentences: list[str] = []

    class Listening(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            sentences.append(record.getMessage())

    listening = Listening(logging.WARNING)
    root = logging.getLogger("millwheel")
    root.addHandler(listening)
    absence.forget()
    try:
        yield sentences
    finally:
        root.removeHandler(listening)
