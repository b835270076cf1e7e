"""Readings of workers' metrics, and rates from two of them. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from millwheel.core.metrics import (
    BUSY_SECONDS,
    CONGESTED,
    CREDIT_USED,
    INBOX_RECORDS,
    RECORDS_IN,
    RECORDS_OUT,
    STATE_BYTES,
)


@dataclass(slots=True)
class ShardReading:
    """One shard in one worker. ``records_in`` and ``records_out`` are counters, ``busy_s`` is time
    in bundles (s), ``inbox`` is the number of waiting records, ``credit`` is the used share of the
    credit of the fullest outgoing lane."""

    records_in: float = 0.0
    records_out: float = 0.0
    busy_s: float = 0.0
    inbox: float = 0.0
    credit: float = 0.0
    congested: float = 0.0
    state_bytes: float = 0.0


_FIELDS = {
    RECORDS_IN.name: "records_in",
    RECORDS_OUT.name: "records_out",
    BUSY_SECONDS.name: "busy_s",
    INBOX_RECORDS.name: "inbox",
    CREDIT_USED.name: "credit",
    CONGESTED.name: "congested",
    STATE_BYTES.name: "state_bytes",
}


def readings_in(text: str) -> dict[str, ShardReading]:
    """The shards in a worker's ``/metrics``, by name."""
    from prometheus_client.parser import text_string_to_metric_families  # not before somebody looks

    shard_text = "\n".join(line for line in text.splitlines() if line.partition("{")[0] in _FIELDS)
    by_shard: dict[str, ShardReading] = {}
    for family in text_string_to_metric_families(shard_text + "\n"):
        for sample in family.samples:
            shard = sample.labels.get("shard")
            if shard is not None:
                setattr(
                    by_shard.setdefault(shard, ShardReading()), _FIELDS[sample.name], sample.value
                )
    return by_shard


@dataclass(frozen=True, slots=True)
class ShardRate:
    """The work of a shard per second between two readings. ``busy`` is a share of one core."""

    records_in: float = 0.0
    records_out: float = 0.0
    busy: float = 0.0


@dataclass(slots=True)
class Rates:
    """Compares readings with earlier ones of the same shard in the same worker: counters begin anew
    with each owner."""

    _before: Mapping[tuple[str, str], ShardReading] = field(default_factory=dict)
    _at_s: float = 0.0

    def take(
        self, readings: Mapping[str, Mapping[str, ShardReading]], at_s: float
    ) -> dict[str, ShardRate]:
        """The rates of all shards by name; ``readings`` are by worker and shard, ``at_s`` is a
        monotonic clock."""
        now = {
            (worker, shard): each
            for worker, shards in readings.items()
            for shard, each in shards.items()
        }
        before, passed_s = self._before, at_s - self._at_s
        self._before, self._at_s = now, at_s
        return dict(_rates(before, now, passed_s))


def _rates(
    before: Mapping[tuple[str, str], ShardReading],
    now: Mapping[tuple[str, str], ShardReading],
    passed_s: float,
) -> Iterator[tuple[str, ShardRate]]:
    for (worker, shard), each in now.items():
        old = before.get((worker, shard))
        if old is None or passed_s <= 0:
            continue
        yield (
            shard,
            ShardRate(
                max(0.0, each.records_in - old.records_in) / passed_s,
                max(0.0, each.records_out - old.records_out) / passed_s,
                max(0.0, each.busy_s - old.busy_s) / passed_s,
            ),
        )
