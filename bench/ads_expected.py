"""What the ads pipelines must give for events in partitions, computed from the events alone,
without the engine."""

from __future__ import annotations

from collections import Counter
from typing import Any

MINUTE_MS, DELAY_MS = 60_000, 10_000
Row = tuple[Any, ...]


class Expected:
    """Events are added in the order of their partitions. An event more than ten seconds behind the
    newest of its partition does not count; of the others each id counts once."""

    def __init__(self, budget: float = 50) -> None:
        self._budget_micros = round(budget * 1_000_000)
        self._newest_ms: dict[int, int] = {}
        self._ids: set[str] = set()
        self._ctr: dict[tuple[int, int], list[Any]] = {}
        self._spent: dict[int, list[int]] = {}
        self._over: dict[int, Row] = {}
        self.late = 0
        self.duplicates = 0

    def add(self, partition: int, event: dict[str, Any]) -> None:
        """The next event of a partition."""
        at_ms, newest_ms = event["ts"], self._newest_ms.get(partition, event["ts"])
        if at_ms < newest_ms - DELAY_MS:
            self.late += 1
            return
        self._newest_ms[partition] = max(newest_ms, at_ms)
        if event["event_id"] in self._ids:
            self.duplicates += 1
            return
        self._ids.add(event["event_id"])
        row = self._ctr.setdefault((event["ad_id"], at_ms - at_ms % MINUTE_MS), [0, 0, 0.0])
        row[event["type"] == "click"] += 1
        row[2] += event["cost"]
        if event["type"] == "click":
            self._bill(event)

    def _bill(self, event: dict[str, Any]) -> None:
        client, spent = event["client_id"], self._spent.setdefault(event["client_id"], [0, 0])
        spent[0] += round(event["cost"] * 1_000_000)
        spent[1] += 1
        if spent[0] > self._budget_micros and client not in self._over:
            self._over[client] = (client, *spent)

    def rows(self) -> dict[str, Counter[Row]]:
        """(ad, start of the window in µs, impressions, clicks, spend) and (client, spent, clicks),
        each once."""
        ctr = [
            (ad, start_ms * 1000, shown, clicks, round(cost, 6))
            for (ad, start_ms), (shown, clicks, cost) in self._ctr.items()
        ]
        return {"ctr": Counter(ctr), "over-budget": Counter(self._over.values())}
