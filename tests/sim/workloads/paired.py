"""Joins of two streams that have more pairs than a step may make. Of all records, in columns: each
bundle takes a part of what came, and the rest waits in the inbox, unacked. In windows: a firing
without room is stored with its records, and goes on in the next bundles, wherever its key is by
then."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from typing import Any

from millwheel.core.columns.state import near_pairs
from millwheel.core.pipeline.spec import (
    ComputationSpec,
    InputSpec,
    PipelineSpec,
    Productions,
    SinkSpec,
    SourceSpec,
    StreamSpec,
)
from millwheel.core.pipeline.work import (
    FiringSpec,
    IntervalJoinSpec,
    JoinKind,
    JoinSpec,
    RegularJoinSpec,
    WindowSpec,
)
from millwheel.core.windows.panes import RETRACTION_FIELD
from millwheel.engine.workers.operators import record_joins, suspension
from millwheel.engine.workers.operators.windows import join_columns
from tests.sim.replacing import replaced
from tests.sim.workloads.base import SECOND, START_US, Workload, by, equal

_FIELDS = {"k": "str", "n": "int", "ts": "int"}
_LEFT, _RIGHT = "shown", "clicked"
_GAP_US = SECOND
_KINDS = [JoinKind.INNER, *(kind for kind in JoinKind if kind is not JoinKind.RIGHT)]


class Paired(Workload):
    """Two sources → a join without a window → sink. In some seeds only records that lie near each
    other are joined."""

    def __init__(self, seed: int, size: float = 1.0) -> None:
        super().__init__(seed, size)
        own = random.Random(f"paired {seed}")
        self.productions, self.columns = Productions.STRONG, _FIELDS
        self.limits = replace(
            self.limits, bundle=own.choice([7, 40]), columns_from=1, rows_below=own.choice([0, 4])
        )
        self.most_pairs = own.choice([5, 20, 60])
        self.near_us = own.choice([None, None, 3 * SECOND])
        self.keys = own.choice([1, 2])
        self.kind = JoinKind.INNER
        if self.near_us is None:
            self.kind = random.Random(f"kind {seed}").choice(_KINDS)
        self.rows = {stream: self._records(own) for stream in (_LEFT, _RIGHT)}

    def _records(self, rng: random.Random) -> dict[str, list[Any]]:
        names = [f"p{number}" for number in range(rng.randint(1, 3))]
        found: dict[str, list[Any]] = {name: [] for name in names}
        for n in range(rng.randint(1, max(1, int(100 * self.size)))):
            row = {"k": f"k{rng.randrange(self.keys)}", "n": n, "ts": START_US + n * SECOND // 7}
            found[rng.choice(names)].append(row)
        return found

    @contextmanager
    def tight(self) -> Iterator[None]:
        with (
            replaced(near_pairs, "_FEW_PAIRS", self.most_pairs),
            replaced(near_pairs, "MOST_PAIR_BYTES", 1),
        ):
            yield

    def spec(self) -> PipelineSpec:
        # Silence lets the watermark pass what is written later, and how far differs.
        timely: dict[str, Any] = {"max_delay_us": SECOND, "idle_after_us": None}
        streams = tuple(
            StreamSpec(name, SourceSpec("files", {"stream": name}), "ts", fields=_FIELDS, **timely)
            for name in (_LEFT, _RIGHT)
        )
        inputs = tuple(InputSpec(name, by("k")) for name in (_LEFT, _RIGHT))
        join = ComputationSpec(
            "pairs", inputs, ("pairs",), self._work(), productions=self.productions
        )
        sinks = tuple(SinkSpec(name, "memory") for name in ("pairs", "dead_letters"))
        return PipelineSpec("sim", streams, (join,), sinks, "/nowhere")

    def _work(self) -> Any:
        if self.near_us is not None:
            return IntervalJoinSpec(JoinKind.INNER, self.near_us, self.near_us)
        return RegularJoinSpec(self.kind)

    def check(self) -> None:
        found: Counter[Any] = Counter()
        for row in self.sinks.rows("pairs"):
            found[self._named(row)] += -1 if RETRACTION_FIELD in row else 1
        equal("pairs", Counter({row: n for row, n in found.items() if n}), self._wanted())
        letters = Counter(letters=len(self.sinks.rows("dead_letters")))
        equal("dead_letters", letters, Counter(letters=0))

    def _named(self, row: dict[str, Any]) -> Any:
        if not self.kind.in_pairs:
            return row["k"], row["n"]
        return row["k"], *(row[side] and row[side]["n"] for side in (_LEFT, _RIGHT))

    def _wanted(self) -> Counter[Any]:
        wanted: Counter[Any] = Counter()
        sides = (
            [(row["k"], row["n"], row["ts"]) for row in self._all(_LEFT)],
            [(row["k"], row["n"], row["ts"]) for row in self._all(_RIGHT)],
        )
        met: tuple[set[Any], set[Any]] = set(), set()
        for left in sides[0]:
            for right in sides[1]:
                if left[0] != right[0] or not self._meet(left, right):
                    continue
                met[0].add(left)
                met[1].add(right)
                if self.kind.in_pairs:
                    wanted[left[0], left[1], right[1]] += 1
        alone = [
            [row for row in rows if row not in of] for rows, of in zip(sides, met, strict=True)
        ]
        if self.kind in (JoinKind.LEFT, JoinKind.OUTER):
            wanted.update((key, n, None) for key, n, _ in alone[0])
        if self.kind in (JoinKind.RIGHT, JoinKind.OUTER):
            wanted.update((key, None, n) for key, n, _ in alone[1])
        if not self.kind.in_pairs:
            chosen = met[0] if self.kind is JoinKind.SEMI else alone[0]
            wanted.update((key, n) for key, n, _ in chosen)
        return wanted

    def _meet(self, left: Any, right: Any) -> bool:
        """Whether two records of a key, (key, n, time), are a pair."""
        return self.near_us is None or abs(left[2] - right[2]) <= self.near_us

    def _all(self, stream: str) -> list[dict[str, Any]]:
        return [row for rows in self.rows[stream].values() for row in rows]


class PairedWindows(Paired):
    """The same in windows, whose firings wait. In some seeds they fire again for late records; in
    half of the others they are in columns."""

    def __init__(self, seed: int, size: float = 1.0) -> None:
        own = random.Random(f"paired windows {seed}")
        self.late = own.random() < 0.5
        super().__init__(seed, size)
        self.productions = own.choice([Productions.STRONG, Productions.STRONG, Productions.WEAK])
        self.near_us, self.kind = None, own.choice([JoinKind.INNER, *JoinKind])
        self.window_us = own.choice([None, 3 * SECOND, 20 * SECOND])
        """The length of tumbling windows; None: sessions."""
        self.room = own.choice([1, 1, 1_000, 5_000])
        if own.random() < 0.5:
            self.columns = {}
        self._sessions = _sessions([*self._all(_LEFT), *self._all(_RIGHT)])

    def _records(self, rng: random.Random) -> dict[str, list[Any]]:
        found = super()._records(rng)
        for row in (row for rows in found.values() for row in rows):
            row["ts"] += rng.choice([0, 0, 2 * SECOND])  # or gaps would be rare
            if self.late and rng.random() < 0.2:
                row["ts"] -= rng.randint(1, 30) * SECOND // 2
        return found if self.late else {p: _in_order(rows) for p, rows in found.items()}

    @contextmanager
    def tight(self) -> Iterator[None]:
        with ExitStack() as limits:
            limits.enter_context(replaced(suspension, "ROOM_BYTES", self.room))
            for module in (suspension, join_columns):
                limits.enter_context(replaced(module, "LEAST_BYTES", 1))
            limits.enter_context(replaced(join_columns, "_MOST_PAIR_BYTES", self.room))
            limits.enter_context(replaced(record_joins, "_PART_BYTES", 100))
            yield

    def _work(self) -> Any:
        window = WindowSpec("session", {"gap_us": _GAP_US})
        if self.window_us is not None:
            window = WindowSpec("tumbling", {"size_us": self.window_us})
        firing = FiringSpec()
        if self.late:
            firing = FiringSpec(accumulation="retracting", allowed_lateness_us=3_600 * SECOND)
        return JoinSpec(window=window, firing=firing, kind=self.kind)

    def _meet(self, left: Any, right: Any) -> bool:
        return self._window_of(left) == self._window_of(right)

    def _window_of(self, row: Any) -> int:
        if self.window_us is not None:
            return int(row[2] // self.window_us)
        return self._sessions[row[0], row[2]]


def _in_order(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return sorted(rows, key=lambda row: row["ts"])


def _sessions(rows: list[dict[str, Any]]) -> dict[tuple[str, int], int]:
    """A number for the session of each key and time."""
    found: dict[tuple[str, int], int] = {}
    last: dict[str, int] = {}
    for key, at in sorted((row["k"], row["ts"]) for row in rows):
        goes_on = key in last and at - last[key] < _GAP_US
        found[key, at] = found[key, last[key]] if goes_on else len(found)
        last[key] = at
    return found
