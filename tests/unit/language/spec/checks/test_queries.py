"""Named queries that ask for what is not there are refused before anything starts."""

from __future__ import annotations

from pathlib import Path

import pytest

from millwheel.errors import PipelineError
from tests.unit.language.spec.parts.test_queries import read


@pytest.mark.parametrize(
    ("queries", "said"),
    [
        ("{cpc: {formula: clikcs.n}}", "clikcs.*clicks"),
        ("{cpc: {formula: clicks.m}}", "unknown value of clicks 'm'"),
        ("{cpc: {formula: clicks}}", "has 2 values; name one, such as clicks.n"),
        ("{cpc: {formula: clicks.n, window: 2d}}", "longer than clicks keeps its slices, 1d"),
        ("{clicks: {formula: clicks.n}}", "the name of a computation"),
        ("{cpc: {formula: clicks.n, keys: {views: ad}}}", "does not ask"),
        ("{cpc: {formula: clicks.n, key: [site], keys: {clicks: ad}}}", "no part of key"),
    ],
)
def test_mistakes_are_named(tmp_path: Path, queries: str, said: str) -> None:
    with pytest.raises(PipelineError, match=said):
        read(tmp_path, queries)
