"""Names of fields in keys, aggregates and sinks."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from millwheel.errors import PipelineError
from millwheel.spec.pipelines import check_pipeline

CODE = """
import msgspec

class Click(msgspec.Struct):
    at: int
    page: str
    user: str
    size: int = 0
"""
TEXT = """
pipeline: p
streams:
  clicks: {{source: {{injection: {{}}}}, timestamp: at, {declared}}}
computations:
  c:
    input: {{clicks: {{key: {key}}}}}
    window: {{tumbling: 1m}}
    aggregate: {{total: {{sum: {field}}}}}
    output: out
sinks:
  out: {{stdout: {{}}}}
"""


@pytest.fixture
def checked(folder: Path) -> Any:
    def run(declared: str, key: str = "page", field: str = "size") -> list[str]:
        (folder / "named_fields.py").write_text(CODE)
        (folder / "p.yaml").write_text(TEXT.format(declared=declared, key=key, field=field))
        return check_pipeline(folder / "p.yaml")[1]

    return run


CLASS = "schema: 'named_fields:Click'"
SOME = "fields: {at: int, page: str, size: int}"


def test_names_that_are_there_are_right(checked: Any) -> None:
    assert checked(CLASS) == checked(SOME) == []
    assert checked(CLASS, key="[page, user]", field="size + 1") == []


def test_a_class_has_no_other_fields(checked: Any) -> None:
    with pytest.raises(
        Exception, match=r"input.clicks.key: the stream 'clicks' has no field 'pgae'; did you mean 'page'\?"
    ):
        checked(CLASS, key="pgae")
    with pytest.raises(PipelineError, match=r"'sizes'; did you mean 'size'\?; known: at, page, size, user"):
        checked(CLASS, field="sizes")
    with pytest.raises(PipelineError, match="has no field 'zzz'; known"):
        checked(CLASS, key="[page, zzz]")


def test_declared_fields_are_some_of_all_so_a_name_that_nearly_is_one_is_a_warning(checked: Any) -> None:
    [warning] = checked(SOME, key="paje")
    assert "the stream 'clicks' has no declared field 'paje'; did you mean 'page'?" in warning
    assert checked(SOME, key="country") == []
