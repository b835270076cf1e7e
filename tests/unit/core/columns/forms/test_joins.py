"""Which joins take whole bundles."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from millwheel.core.columns.forms.joins import window_of_join
from millwheel.language.spec import load_pipeline
from tests.unit.core.columns.state.test_near_pairs import pairing_or_why

JOIN = """pipeline: p
streams:
  shown: {source: {injection: {}}, timestamp: {field: at, unit: us}}
  clicked: {source: {injection: {}}, timestamp: {field: at, unit: us}}
computations:
  matched:
    input: {shown: {key: ad}, clicked: {key: ad}}
    window: %s
    join: inner
    %s
    output: matched
"""


@pytest.mark.parametrize(
    ("more", "window", "whole"),
    [
        ("", "{tumbling: 10us}", True),
        ("late: {side: behind}", "{tumbling: 1d, time_zone: Europe/Berlin}", True),
        ("productions: weak", "{tumbling: 10us}", False),
        ("", "{sliding: 10us, every: 5us}", False),
        ("", "{session: 5us}", False),
        ("", "{count: 3}", False),
    ],
)
def test_joins_in_tumbling_windows_take_whole_bundles(
    tmp_path: Path, more: str, window: str, whole: bool
) -> None:
    (tmp_path / "p.yaml").write_text(JOIN % (window, more))
    spec = load_pipeline(tmp_path / "p.yaml")
    assert (window_of_join(spec.computations[0], spec) is not None) == whole


@pytest.mark.parametrize(
    ("parts", "why"),
    [
        ({"kind": "left"}, "without a partner"),
        ({"key": "{k: ad + 1}"}, "not a field"),
        ({"within": "{until: shown.cost}"}, "bound of within"),
        ({"within": "{until: \"time_of(shown.what, 'ms')\"}"}, "bound of within"),
    ],
)
def test_a_join_without_columns_has_a_reason(tmp_path: Path, parts: Any, why: str) -> None:
    found = pairing_or_why(tmp_path, **parts)
    assert isinstance(found, str)
    assert why in found
