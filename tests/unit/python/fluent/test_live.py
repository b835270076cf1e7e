"""Pipelines that no file defines."""

from __future__ import annotations

from millwheel.connect.python_objects import load_object
from tests.unit.python.fluent.test_draft import small


def test_a_pipeline_without_a_file_is_a_spec_too() -> None:
    pipeline, hits = small()
    hits.map(lambda value: value * 2, name="twice")
    (twice,) = pipeline.spec().computations
    assert load_object(twice.work.steps[0].function, "/nowhere")(21) == 42
    assert twice.where.startswith(f"{__file__}:")
