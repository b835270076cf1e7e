"""Windows that outsiders ask for while steps with failures wait for a verdict: no answer shows
anything of these."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import replace
from random import Random
from typing import Any

from millwheel.core.model.failures import OnError
from millwheel.core.pipeline.spec import PipelineSpec
from tests.sim.workloads.base import equal
from tests.sim.workloads.windows import AskedWindows

_FAILING = 6  # records at most: the steps of each wait for a second
_OTHERS_FIRST = OnError(0.5, 1_000_000)


class Held(AskedWindows):
    """The tumbling windows of ``asked`` over some numbers that cannot be added up."""

    def __init__(self, seed: int, size: float = 1.0) -> None:
        super().__init__(seed, size)
        own = Random(f"held {seed}")
        self.fields = {}
        rows = [row for rows in self.rows["clicks"].values() for row in rows]
        for row in own.sample(rows, min(own.randint(1, _FAILING), len(rows))):
            row["n"] = "many"

    def spec(self) -> PipelineSpec:
        whole = super().spec()
        tumbling = tuple(each for each in whole.computations if each.name == "tumbling")
        shown = tuple(
            each for each in whole.sinks if each.stream in ("tumbling_out", "dead_letters")
        )
        return replace(whole, computations=tumbling, sinks=shown)

    def _judged(self, spec: PipelineSpec) -> PipelineSpec:
        judged = super()._judged(spec)
        return replace(
            judged,
            computations=tuple(replace(c, on_error=_OTHERS_FIRST) for c in judged.computations),
        )

    def on_time(self, partitions: Iterable[list[Any]] | None = None) -> Iterator[dict[str, Any]]:
        return (row for row in super().on_time(partitions) if row["n"] != "many")

    def check(self) -> None:
        grouped = self._grouped(
            (row["key"], row["ts"] - row["ts"] % self.size_us, row["n"]) for row in self.on_time()
        )
        equal("tumbling", self._found("tumbling_out"), self._counted(grouped))
        failing = [row for row in super().on_time() if row["n"] == "many"]
        letters = [letter["value"] for letter in self.sinks.rows("dead_letters")]
        equal("letters", _places(letters), _places(failing))
        self.check_answered()


def _places(rows: list[Any]) -> Counter[Any]:
    return Counter((row["p"], row["ts"]) for row in rows)
