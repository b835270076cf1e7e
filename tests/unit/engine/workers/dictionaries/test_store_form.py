"""What is read of a dictionary's store in another thread is what its shard would read itself."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from millwheel.core.formats.number_runs import words_of
from millwheel.core.model.names import NodeName
from millwheel.core.pipeline.work import NOTHING
from millwheel.engine.workers.dictionaries.numbers import Numbers
from millwheel.engine.workers.dictionaries.store_form import NumbersRead, read_numbers
from millwheel.engine.workers.state.overlay import Overlay
from millwheel.language.spec.pipelines import load_pipeline
from tests.fakes.plain_storage import SimStore
from tests.unit.engine.workers.dictionaries.test_dictionary import DICTIONARY
from tests.unit.engine.workers.operators.combinations import written

_PARTITIONS, _HOUR = 5, 3_600_000_000


def _ids(numbers: Numbers, values: list[str], at: int) -> list[int]:
    partitions = np.array([len(value) % _PARTITIONS for value in values], np.int64)
    return numbers.of(
        words_of(values), partitions, np.full(len(values), at), lambda: values
    ).tolist()


@pytest.mark.parametrize("ttl_us", [None, 8 * _HOUR])
def test_a_shard_goes_on_from_what_was_read_as_from_its_store(ttl_us: int | None) -> None:
    store = SimStore({})
    overlay = Overlay(store)
    first = Numbers(store, overlay, _PARTITIONS, "ids-1", ttl_us)
    for bundle in range(20):
        first.forget(bundle * _HOUR)
        _ids(
            first,
            [f"{'v' * (each % 7)}{each % (3 * bundle + 1)}" for each in range(30)],
            bundle * _HOUR,
        )
        first.write()
        store.apply(*overlay.take())
    asked = [f"{'v' * (each % 7)}{each % 90}" for each in range(150)]
    found = []
    for stored in (None, read_numbers(store, _PARTITIONS, timed=ttl_us is not None)):
        again = SimStore(dict(store.scan(b"")))
        overlay = Overlay(again)
        successor = Numbers(again, overlay, _PARTITIONS, "ids-2", ttl_us, stored=stored)
        successor.forget(21 * _HOUR)
        ids = [
            _ids(successor, asked[start : start + 50], 21 * _HOUR) for start in range(0, 150, 50)
        ]
        successor.write()
        again.apply(*overlay.take())
        found.append((ids, dict(again.scan(b"")), successor.due_at()))
    assert found[0] == found[1]
    assert len(found[0][1]) > 1


def test_only_the_stores_of_dictionaries_are_read(tmp_path: Path) -> None:
    spec = load_pipeline(written(tmp_path, DICTIONARY))
    read = NumbersRead(spec.computations)
    numbers = read.read("ids", SimStore({}))
    assert numbers is not None
    assert len(numbers.counted) == 4
    assert len(numbers.table) == 0
    assert read.read(NodeName("source.hits"), SimStore({})) is None
    others = [replace(each, work=NOTHING) for each in spec.computations]
    assert NumbersRead(others).read("ids", SimStore({})) is None
