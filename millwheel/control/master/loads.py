"""The load of shards, computed from the totals that their owners report: smoothed rates and the
distribution of keys. Pure."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace

from millwheel.control.master.events import ShardLoad
from millwheel.core.model.lease import Lease
from millwheel.core.model.names import NO_TOKEN, ShardName, Token

_SMOOTH_US = 3_000_000  # over which loads are averaged: a burst moves nothing
_SECOND = 1_000_000  # Fixed: µs


@dataclass(frozen=True, slots=True)
class Load:
    """``busy`` is the share of one core that the shard takes, ``sample`` the hashes of some of its
    recent keys. The last report, at ``at_us``, had ``recent_records`` more than the one ``over_us``
    before; they took its owner, under ``token``, ``recent_us``. They are not averaged: so a slow
    worker is found in seconds."""

    busy: float
    records_per_s: float = 0.0
    sample: Sequence[int] = ()
    recent_records: int = 0
    recent_us: int = 0
    token: Token = NO_TOKEN
    at_us: int = 0
    over_us: int = 0


@dataclass(slots=True)
class _Last:
    at_us: int
    report: ShardLoad


class LoadBook:
    """The loads of all shards. A shard is unknown until its owner has reported twice."""

    def __init__(self) -> None:
        self._last: dict[ShardName, _Last] = {}
        self._loads: dict[ShardName, Load] = {}

    def take(self, report: ShardLoad, now_us: int) -> None:
        """Add a report of totals since the owner opened the shard. A new owner begins from zero."""
        last = self._last.get(report.shard)
        self._last[report.shard] = _Last(now_us, report)
        # Totals of two owners have no difference: a zombie's would make a busy shard look idle, and
        # it would not move.
        if last is None or not Lease(last.report.token).admits(report.token):
            load = self._loads.get(report.shard)
            if load is not None:
                self._loads[report.shard] = replace(
                    load, recent_records=0, recent_us=0, token=report.token
                )
            return
        if now_us <= last.at_us:
            return
        passed_us = now_us - last.at_us
        worked_us = max(report.busy_us - last.report.busy_us, 0)
        done = max(report.records - last.report.records, 0)
        busy, records = worked_us / passed_us, done * _SECOND / passed_us
        before = self._loads.get(report.shard)
        if before is not None:
            share = min(1.0, passed_us / _SMOOTH_US)
            busy = before.busy + share * (busy - before.busy)
            records = before.records_per_s + share * (records - before.records_per_s)
        self._loads[report.shard] = Load(
            busy, records, report.sample, done, worked_us, report.token, now_us, passed_us
        )

    def forget_others(self, shards: Collection[ShardName]) -> None:
        """Drop all shards but these."""
        for gone in self._last.keys() - shards:
            del self._last[gone]
            self._loads.pop(gone, None)

    @property
    def loads(self) -> dict[ShardName, Load]:
        """Every shard that has reported its load."""
        return dict(self._loads)
