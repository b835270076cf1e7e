"""Deliberate mistakes of sources: positions, and dead letters about what was read."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

from millwheel.core.model.names import ChannelName
from millwheel.engine.workers.bundle.bundle import Bundle
from millwheel.engine.workers.delivery.combining import whole
from millwheel.engine.workers.operators.broadcast.enrichment import BroadcastOperator
from millwheel.engine.workers.sinks.chain_end import ChainEnd
from millwheel.engine.workers.sinks.source_with_sink import SourceWithSink
from millwheel.engine.workers.sources.combining import Combine
from millwheel.engine.workers.sources.partition import Part
from millwheel.engine.workers.sources.sorting import Sorting
from millwheel.engine.workers.sources.source import SourceOperator
from millwheel.engine.workers.threads import recovery
from tests.sim import mistakes_of_both
from tests.sim.mistakes import Context, mistake, replaced


@mistake(within=20)
def position_committed_when_read() -> Context:
    """A source commits how far it has read before the consumers have applied it."""
    right = SourceOperator._look_at

    def wrong(self: SourceOperator, part: Any, bundle: Any) -> None:
        right(self, part, bundle)
        if part.outstanding:
            part.committed = part.outstanding[-1].after
            part.write(bundle.overlay)

    return replaced(SourceOperator, "_look_at", wrong)


@mistake(within=5, workload="letters")
def letters_numbered_with_the_records() -> Context:
    """The letters of a read are on the channel of its records, whose marks cut them off."""
    right = Part.chunk
    return replaced(
        Part, "chunk", lambda self, channel, batches: right(self, self.channel, batches)
    )


@mistake(within=3, workload="letters", first=2)
def letters_stamped_with_the_read() -> Context:
    """Letters have the watermark before their read, which begins elsewhere after a crash."""
    right = Sorting._floors

    def wrong(self: Sorting, first: int, positions: Any, stamps: Any, bad: Any) -> Any:
        self._stated = True
        return right(self, first, positions, stamps, bad)

    return replaced(Sorting, "_floors", wrong)


@mistake(within=8, workload="letters", first=7)
def letters_numbered_by_multiples_of_positions() -> Context:
    """Positions times so many as a record can have letters: there are positions for which that is
    no number."""
    right = Sorting._dead_letters

    def wrong(self: Sorting, timestamps: Any) -> Any:
        for index, (position, letter) in enumerate(self._letters):
            self._letters[index] = (position * 1024, letter)
        return right(self, timestamps)

    return replaced(Sorting, "_dead_letters", wrong)


@mistake(within=5, workload="letters")
def one_channel_for_the_letters_of_all() -> Context:
    """Letters from several about one record have one number: who consumes them takes the second for
    a copy."""
    right = Part.chunk

    def wrong(self: Part, channel: str, batches: Any) -> Any:
        before, mark, after = channel.partition("!")
        return right(
            self, ChannelName(f"{before}!/{after.partition('/')[2]}" if mark else channel), batches
        )

    return replaced(Part, "chunk", wrong)


@mistake(within=9, workload="combined", faults="kill", first=6)
def groups_begin_before_records_are_applied() -> Context:
    """A source sends groups, and commits the position behind them, while records before it are on
    their way."""
    return replaced(Part, "applied", property(lambda self: True))


@mistake(within=10, workload="combined", faults="kill", first=53)
@contextmanager
def records_are_sent_before_that_is_committed() -> Iterator[None]:
    """A source sends records where a new owner will send groups of them."""

    # An owner that began with groups itself often ends with them, and one that found them goes on:
    # neither is wrong.
    begin = Combine.begin

    def begun(self: Combine) -> None:
        begin(self)
        self.pause = 2

    def goes_on(self: Combine, combining: Any, groups: Any, batches: Any, records: int) -> bool:
        return self.pause != 2 or records % 2 == 0

    with ExitStack() as stack:
        stack.enter_context(replaced(Combine, "begin", begun))
        stack.enter_context(replaced(Combine, "goes_on", goes_on))
        stack.enter_context(
            replaced(Part, "leave_groups", lambda self, bundle: self.combine.leave())
        )
        yield


@mistake(within=10, workload="combined", faults="kill")
def groups_without_their_position() -> Context:
    """A source sends groups, and commits how far it has read with a later commit."""
    right = SourceOperator._write

    def wrong(self: SourceOperator, part: Any, after: Any, bundle: Any, *more: Any) -> None:
        if not after.with_results:
            right(self, part, after, bundle, *more)
        part.committed = after

    return replaced(SourceOperator, "_write", wrong)


@mistake(within=20, workload="combined", faults="kill")
def the_rest_of_productions_goes_to_all_after_a_crash() -> Context:
    """A new owner sends productions that it finds to all consumers, also to those that got groups
    of them."""
    right = recovery.read_pending  # type: ignore[attr-defined]

    def wrong(store: Any) -> Any:
        found: Any = right(store)
        return [
            (chunk, channel, [whole(each) for each in batches], chosen)
            for chunk, channel, batches, chosen in found
        ]

    return replaced(recovery, "read_pending", wrong)


@mistake(within=3, workload="enriched")
def tables_count_as_read() -> Context:
    """Records are read, and pass, without a wait for the tables that they are enriched with."""
    return mistakes_of_both.tables_count_as_read()


@mistake(within=10, workload="enriched")
def records_pass_a_table_that_is_not_there_yet() -> Context:
    """A worker enriches records before it has all of a table that it holds whole."""
    return replaced(BroadcastOperator, "intake", lambda self, waiting, now_us, watermark: waiting)


@mistake(within=6, workload="chains", faults="kill")
def chained_reads_without_their_position() -> Context:
    """What is made of a read is committed, and how far it goes only at the end of the partition."""
    right = SourceOperator._write

    def wrong(self: SourceOperator, part: Part, after: Any, bundle: Any, *more: Any) -> None:
        if after.finished or not part.with_results:
            right(self, part, after, bundle, *more)
        part.committed = after

    return replaced(SourceOperator, "_write", wrong)


@mistake(within=6, workload="chains", faults="kill")
def chained_reads_without_their_batch() -> Context:
    """The position behind a read is committed while what was made of it waits for a batch."""
    right = SourceWithSink._send

    def wrong(self: SourceWithSink, part: Part, outcome: Any, bundle: Any) -> None:
        right(self, part, outcome, bundle)
        if part.outstanding and part.outstanding[-1].with_results:
            self._write(part, part.outstanding[-1].after, bundle, 1)

    return replaced(SourceWithSink, "_send", wrong)


@mistake(within=6, workload="chains", faults="")
def what_waits_for_a_batch_is_forgotten() -> Context:
    """What a chain makes of a read besides the records of its sink is not committed with them."""
    right = ChainEnd.take

    def wrong(self: ChainEnd, made: Bundle, size: int, commit: Any) -> None:
        right(self, made, size, commit)
        made.outputs.streams.clear()

    return replaced(ChainEnd, "take", wrong)


@mistake(within=10, workload="chains", faults="kill")
def what_was_sent_is_taken_by_a_chain_again() -> Context:
    """A new owner lets a chain take what lies behind the committed position, although the former
    one has sent reads of it to the shards of the consumers."""

    def wrong(self: Part, first_owner: bool) -> bool:
        self.with_results = self.combine.on = self.committed.with_results or not first_owner
        return False

    return replaced(Part, "chain", wrong)
