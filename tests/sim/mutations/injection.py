"""Deliberate mistakes about injected records."""

from __future__ import annotations

from typing import Any

from millwheel.core.formats.store_layout import RUNS, SEEN
from millwheel.engine.workers.bundle.bundle import Bundle
from millwheel.engine.workers.delivery.instances import ChosenInstances
from millwheel.engine.workers.shard.seen_ids import SeenIds
from millwheel.engine.workers.sources import injection
from millwheel.engine.workers.sources.injection import InjectionOperator
from tests.sim.mistakes import Context, mistake, replaced


@mistake(within=1, workload="injected", faults="kill kill-again", first=12)
def injected_records_are_acked_before_their_commit() -> Context:
    """A client is told that its records are durable when they are applied."""
    right = InjectionOperator.run

    def wrong(self: InjectionOperator, bundle: Bundle) -> None:
        right(self, bundle)
        for arrival in bundle.arrivals:
            answered: Any = arrival.reply_to
            answered()

    return replaced(InjectionOperator, "run", wrong)


@mistake(within=1, workload="injected", faults="kill kill-again move", first=3)
def ids_of_injected_records_are_forgotten_when_a_shard_moves() -> Context:
    """A new owner knows no ids: what is sent again to it counts again."""
    right = SeenIds.__init__

    class Empty:
        def __init__(self, store: Any) -> None:
            self._store = store

        def scan(self, prefix: bytes, since: bytes = b"") -> Any:
            return iter(()) if prefix == RUNS else self._store.scan(prefix, since)

        def first(self, lo: bytes, hi: bytes) -> Any:
            return None if lo == SEEN else self._store.first(lo, hi)

        def __getattr__(self, name: str) -> Any:
            return getattr(self._store, name)

    def wrong(self: SeenIds, store: Any, *others: Any, **more: Any) -> None:
        right(self, Empty(store), *others, **more)

    return replaced(SeenIds, "__init__", wrong)


@mistake(within=1, workload="injected", faults="kill kill-again", first=3)
def instances_of_injected_records_are_not_stored() -> Context:
    """A new owner of an injected stream takes the instance of a record from what it knows itself,
    and not from the record."""

    def wrong(self: ChosenInstances, node: str, instances: int, keys: Any, seqs: Any) -> list[int]:
        found: list[int] = self.tables.choose(node, keys)
        return found

    return replaced(ChosenInstances, "of", wrong)


@mistake(within=1, workload="injected", faults="none", first=6)
def injected_records_are_late_after_silence() -> Context:
    """What comes to a shard after a silence is judged by how far that has moved the watermark."""
    right, late = InjectionOperator.run, injection.is_behind  # type: ignore[attr-defined]

    def wrong(self: InjectionOperator, bundle: Bundle) -> None:
        idle_us = self._own_hold().idle_us
        with replaced(injection, "is_behind", lambda at_us, us: late(at_us, max(us, idle_us))):
            right(self, bundle)

    return replaced(InjectionOperator, "run", wrong)


@mistake(within=1, workload="injected", faults="none", first=6)
def injected_records_are_late_by_bundles() -> Context:
    """Records of one bundle do not make each other late, those of two do."""
    right, late = InjectionOperator.run, injection.is_behind  # type: ignore[attr-defined]

    def wrong(self: InjectionOperator, bundle: Bundle) -> None:
        before_us = self._reached_us
        with replaced(injection, "is_behind", lambda at_us, _: late(at_us, before_us)):
            right(self, bundle)

    return replaced(InjectionOperator, "run", wrong)
