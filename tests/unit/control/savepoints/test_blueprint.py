"""What of a pipeline decides whether another one can go on with its state."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from millwheel.control.savepoints import blueprint
from millwheel.control.savepoints.blueprint import Blueprint, blueprint_of
from millwheel.control.savepoints.compatibility import compare, worst
from millwheel.control.savepoints.rules import Compatibility
from millwheel.language.spec import load_pipeline
from tests.unit.control.savepoints.test_compatibility import CLASSES, SPEC


def test_a_blueprint_is_the_same_after_it_was_stored(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(blueprint, "load_object", lambda name, folder: CLASSES[name])
    made = blueprint_of(SPEC)
    assert msgspec.json.decode(msgspec.json.encode(made), type=Blueprint) == made


BEFORE_GROUPS = """
pipeline: p
streams:
  bids:
    source: {files: {path: in, format: jsonl}}
    timestamp: {field: at, unit: us}
    fields: {at: int, auction: int, price: int}
computations:
  made: {input: bids, map: {auction: auction, price: "%s"}, output: made}
  sums: {input: {made: {key: auction}}, %s aggregate: {total: {sum: price}}, output: sums}
"""


def computed(price: str, window: str, folder: Path) -> Blueprint:
    (folder / "p.yaml").write_text(BEFORE_GROUPS % (price, window))
    return blueprint_of(load_pipeline(folder / "p.yaml"))


@pytest.mark.parametrize("window", ["", "window: {tumbling: 10s},"], ids=["groups", "windows"])
@pytest.mark.parametrize(
    ("price", "verdict"),
    [
        ("price * 3", Compatibility.FREE),
        ("price / 2", Compatibility.REFUSED),
        ("cast(price, 'text')", Compatibility.REFUSED),
    ],
)
def test_windows_and_groups_are_taken_over_if_what_is_computed_before_them_has_its_types(
    window: str, price: str, verdict: Compatibility, tmp_path: Path
) -> None:
    """They lie in columns of these types, which other columns would not find."""
    before, after = (computed(each, window, tmp_path) for each in ("price * 2", price))
    changes = compare(before, after)
    assert worst(changes) is verdict
    sentences = [str(each) for each in changes if each.verdict is Compatibility.REFUSED]
    assert len(sentences) == (verdict is Compatibility.REFUSED)
    assert all(
        each.startswith("sums: what steps make of the types of its input changed (made)")
        for each in sentences
    )
