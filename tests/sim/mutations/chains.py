"""Deliberate mistakes about computations that run in the shards of others."""

from __future__ import annotations

from millwheel.core.pipeline.spec import DEAD_LETTERS
from millwheel.engine.workers.bundle.bundle import Bundle, Outputs
from millwheel.engine.workers.operators.stateless import chained
from millwheel.engine.workers.operators.stateless.chained import ChainLink
from tests.sim.mistakes import Context, mistake, replaced


@mistake(within=2, workload="chains", faults="kill kill-again power")
def what_a_chain_makes_is_in_the_next_commit() -> Context:
    """Input is acked with a commit in which what a chained computation made of it is missing: a new
    owner has neither."""
    right = chained._add
    waiting: dict[int, Outputs] = {}

    def wrong(link: ChainLink, part: Bundle, bundle: Bundle) -> None:
        made = part.outputs
        part.outputs = waiting.pop(id(link), Outputs())
        waiting[id(link)] = made
        right(link, part, bundle)

    return replaced(chained, "_add", wrong)


@mistake(within=1, workload="chains", faults="none")
def letters_of_chained_computations_are_dropped() -> Context:
    """What the second computation of a chain could not use is counted, and not told."""
    right = chained._add

    def wrong(link: ChainLink, part: Bundle, bundle: Bundle) -> None:
        part.outputs.streams.pop(DEAD_LETTERS, None)
        right(link, part, bundle)

    return replaced(chained, "_add", wrong)
