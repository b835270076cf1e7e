"""Deliberate mistakes about chains of computations without state."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from millwheel.engine.workers.bundle.bundle import Bundle
from millwheel.engine.workers.delivery import fanout
from millwheel.engine.workers.delivery.combining import whole
from millwheel.engine.workers.operators import chains
from millwheel.engine.workers.operators.chains import ChainLink
from millwheel.engine.workers.shard import opening, shard
from tests.search.mistakes import Context, mistake, replaced


@mistake(within=4, features="chained", variants="reference")
def a_chain_leaves_its_records_to_its_own_shards_too() -> Context:
    """What a computation has taken where it was made is sent to its shards as well, so that it
    counts twice."""
    return replaced(fanout, "left_out", lambda stream: frozenset())


@mistake(within=4, features="chained", variants="crash crashes crash-bundles restart")
def productions_in_flight_come_to_those_that_had_them() -> Context:
    """A new owner sends productions that it finds to all consumers of their stream."""
    right = opening.read_productions

    def wrong(pending: Any, fanout: Any) -> Any:
        known = [
            (number, channel, [whole(batch) for batch in stored], instances)
            for number, channel, stored, instances in pending
        ]
        return right(known, fanout)

    return replaced(shard, "read_productions", wrong)


@mistake(within=4, features="chained_results", variants="reference")
def a_chain_takes_the_timers_of_its_first() -> Context:
    """What stands behind a computation with state fires the timers that are due in its shard."""
    right = chains._run_link

    def wrong(link: ChainLink, batches: Any, bundle: Bundle) -> None:
        with replaced(chains, "TimerQueue", bundle.timers.__getitem__):
            right(link, batches, bundle)

    return replaced(chains, "_run_link", wrong)


@mistake(within=4, features="chained_results", variants="reference")
def what_a_timer_emits_is_no_part_of_a_chain() -> Context:
    """What a computation with state makes of a bundle without records is forgotten."""
    right = chains._pass_on_results

    def wrong(node: str, links: Sequence[ChainLink], bundle: Bundle) -> None:
        if not bundle.arrivals:
            for stream in {link.stream for link in links}:
                chains.taken(stream, "", bundle)
        right(node, links, bundle)

    return replaced(chains, "_pass_on_results", wrong)


@mistake(within=4, features="chained", variants="reference")
def what_a_chain_takes_is_kept_from_others() -> Context:
    """A stream does not leave the shards in which a computation has taken it."""
    right = chains.taken
    return replaced(chains, "taken", lambda stream, for_others, made: right(stream, "", made))
