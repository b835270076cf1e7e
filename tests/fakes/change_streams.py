"""Change streams of a database as connectors deliver them: from a seed, with what they say in the
end.

A history of a table is drawn, and written as a connector does: its last events again after each
crash, single old ones now and then, rows that a snapshot reads while the stream goes on, and in
some histories an event that lies before the snapshot in the log although its transaction ended
after it.
"""

from __future__ import annotations

import json
import random
from dataclasses import dataclass, field
from typing import Any

LOGS = ("lsn", "binlog", "change_lsn", "times")
COUNTRIES = ("DE", "FR", "IT")
TABLES = ("people", "dogs")
START_MS = 1_767_225_600_000


@dataclass
class ChangeStream:
    """``messages`` are (key, value), ``rows`` is what stands in the end. ``form`` are the options
    of the format. The positions of an ``exact`` one tell every old event."""

    messages: list[tuple[bytes | None, bytes]] = field(default_factory=list)
    rows: dict[tuple[str, int], dict[str, Any]] = field(default_factory=dict)
    form: dict[str, Any] = field(default_factory=dict)
    exact: bool = True


@dataclass
class _Drawing:
    draw: random.Random
    log: str
    keyed: bool
    whole: bool
    stream: ChangeStream = field(default_factory=ChangeStream)
    at: int = 10
    moved_at: int = 0
    moved_from: int = 0

    def change(self) -> None:
        """One event of the log."""
        table, key = self.draw.choice(TABLES), self.draw.randrange(6)
        before = self.stream.rows.get((table, key))
        after: dict[str, Any] | None = {
            "id": key,
            "country": self.draw.choice(COUNTRIES),
            "table": table,
        }
        if before is not None and self.draw.random() < 0.3:
            after = None
        self.at += self.draw.choice((1, 1, 7))
        self.note(table, key, after)
        self.write(
            "c" if before is None else "d" if after is None else "u",
            table,
            key,
            before,
            after,
            self.at,
        )

    def note(self, table: str, key: int, after: Any) -> None:
        if after is None:
            self.stream.rows.pop((table, key), None)
        else:
            self.stream.rows[table, key] = after

    def write(self, op: str, table: str, key: int, before: Any, after: Any, at: int) -> None:
        if not self.whole and before is not None:
            before = None if op == "u" else {"id": key, "country": None, "table": None}
        source = {
            "name": "shop",
            "table": table,
            "ts_ms": START_MS + at,
            **self.position(at, op == "r"),
        }
        event = {
            "op": op,
            "before": before,
            "after": after,
            "ts_ms": START_MS + 10 * at,
            "source": source,
        }
        message_key = json.dumps({"id": key}).encode() if self.keyed else None
        self.stream.messages.append((message_key, json.dumps(event).encode()))

    def position(self, at: int, reread: bool) -> dict[str, Any]:
        at -= self.moved_at
        if self.log == "lsn":
            return {"lsn": at}
        if self.log == "binlog":
            return {
                "file": f"bin.{at // 50:06d}",
                "pos": at % 50,
                "row": 0,
                "server_id": 0 if reread else 3 + self.moved_at,
            }
        if self.log == "change_lsn":
            return {"commit_lsn": f"{at:08x}", "change_lsn": None if reread else f"{at:08x}"}
        return {}

    def repeat(self) -> None:
        """The connector has crashed, and begins again some events before."""
        count = self.draw.randrange(1, 9)
        self.stream.messages += self.stream.messages[-count:]

    def repeat_one(self) -> None:
        """An old event alone. Only a position tells that it is old."""
        events = [
            each for each in self.stream.messages[self.moved_from :] if b'"op": "r"' not in each[1]
        ]
        if events:
            self.stream.messages.append(self.draw.choice(events))

    def read_again(self) -> None:
        """A snapshot reads some rows."""
        for (table, key), row in list(self.stream.rows.items()):
            if self.draw.random() < 0.5:
                self.write("r", table, key, None, row, self.at)

    def move(self) -> None:
        """The database goes on elsewhere, and the positions in its log begin anew."""
        self.stream.exact = False
        self.moved_at, self.moved_from = self.at, len(self.stream.messages)

    def commit_behind_a_snapshot(self) -> None:
        """A transaction has written before a snapshot, which sees the former row, and ends after
        it."""
        if not self.keyed or not self.stream.rows:
            return
        (table, key), row = self.draw.choice(sorted(self.stream.rows.items()))
        self.at += 1
        written, self.at = self.at, self.at + 1
        self.write("r", table, key, None, row, self.at)
        after = {**row, "country": self.draw.choice(COUNTRIES)}
        self.note(table, key, after)
        self.write("u", table, key, row, after, written)


def change_stream(seed: int) -> ChangeStream:
    """The change stream of a seed."""
    draw = random.Random(seed)
    log, known = draw.choice(LOGS), draw.choice(("key", "named", "row"))
    drawing = _Drawing(draw, log, known == "key", whole=known == "row" or draw.random() < 0.5)
    drawing.stream.form = {"add": {"changed_ms": "ts_ms"}}
    if known == "named":
        drawing.stream.form["key"] = ["id"]
    steps = [drawing.change] * 8 + [drawing.repeat, drawing.read_again]
    if log == "times":  # two events of one moment are in no order
        drawing.stream.exact = False
    else:
        steps.append(drawing.repeat_one)
    if log in ("lsn", "binlog") and known != "row" and draw.random() < 0.3:
        steps.append(drawing.move)
    elif log == "lsn":
        steps.append(drawing.commit_behind_a_snapshot)
    for _ in range(60):
        draw.choice(steps)()
    return drawing.stream
