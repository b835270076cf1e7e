"""The public modules lead to the classes themselves, with their types."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from millwheel.client import Injector
from millwheel.plugins import Lookup, LookupKey, NoAnswer
from millwheel.testing import PipelineHarness
from millwheel.testing.contracts import IDENTITY, SinkWorld


class Names(Lookup):
    where = "a file"
    by = ("id",)

    def look_up(self, keys: Sequence[LookupKey]) -> Sequence[Any]:
        return [NoAnswer(f"{IDENTITY} has none")] * len(keys)


def push(harness: PipelineHarness, injector: Injector, world: SinkWorld) -> int:
    harness.push("hits", {"a": 1})
    harness.push_all("hits", {"a": 1})  # error
    NoAnswer(3)  # error
    world.rows(1)  # error
    return injector.send([{"a": 1}], ids="x").accepted + injector.send()  # error
