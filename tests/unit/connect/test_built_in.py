"""Every connector is a row, and CONTRIBUTING.md, "Add a connector": one module or folder, and one
row. Everything else follows."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
import tomllib
from jsonschema import Draft202012Validator

from millwheel.connect import built_in
from millwheel.connect.built_in import LOOKUPS, SINKS, SOURCES, Connector, extra_of, other_system
from millwheel.connect.kinds import build_source, known_sources
from millwheel.connect.options import options_of
from millwheel.core.pipeline.spec import SourceSpec
from millwheel.errors import PipelineError
from millwheel.language.schema.parts import pipeline_schema
from millwheel.language.spec.pipelines import load_pipeline
from millwheel.tools.cli import doctor
from tests import kinds
from tests.unit.connect import toy

ROWS = [*SOURCES.items(), *SINKS.items(), *LOOKUPS.items()]
PROJECT = Path(__file__).parents[3] / "pyproject.toml"
PIPELINE = """
pipeline: p
streams: {strokes: {source: {bell: {strokes: 3}}, timestamp: n}}
computations: {c: {input: strokes, map: n, output: out}}
"""


@pytest.mark.parametrize(("kind", "row"), ROWS, ids=[kind for kind, _ in ROWS])
def test_a_row_names_a_declaration_a_builder_and_an_extra_that_exist(
    kind: str, row: Connector
) -> None:
    assert row.form() is None or options_of(row.form())
    assert not row.build or callable(built_in._loaded(row.build))
    extras = tomllib.loads(PROJECT.read_text())["project"]["optional-dependencies"]
    assert row.extra in ("", *extras)
    assert bool(row.extra) is bool(row.library)


def test_an_extra_is_found_by_kind_and_by_scheme() -> None:
    assert [extra_of(name) for name in ("kafka", "rediss", "postgresql", "delta", "ftp")] == [
        "kafka",
        "redis",
        "postgres",
        "delta",
        "",
    ]
    assert other_system("postgresql").endswith("pip install 'millwheel-spark[postgres]'")
    assert other_system("ftp").startswith("nothing here reads or writes ftp://; files lie")
    assert other_system("ftp").endswith("delta, http, iceberg, kafka, postgres, redis")
    assert {row.extra for _, row in ROWS} - {""} <= {*doctor.EXTRAS}


@pytest.fixture
def bell(monkeypatch: pytest.MonkeyPatch) -> None:
    """As one module in ``millwheel/connect`` and the row below would make it."""
    monkeypatch.setitem(sys.modules, "millwheel.connect.connectors.bell", toy)
    row = Connector("connectors.bell:BellOptions", "connectors.bell:build_bell", extra="http")
    monkeypatch.setitem(SOURCES, "bell", row)  # type: ignore[arg-type]


@pytest.mark.usefixtures("bell")
def test_a_toy_connector_is_a_kind_of_a_pipeline_file_with_all_checks(tmp_path: Path) -> None:
    def read(options: str) -> SourceSpec | None:
        (tmp_path / "p.yaml").write_text(PIPELINE.replace("strokes: 3", options))
        return load_pipeline(tmp_path / "p.yaml").streams[0].source

    assert "bell" in known_sources()
    assert read("strokes: 3") == SourceSpec("bell", {"strokes": 3})
    with pytest.raises(PipelineError, match=r"option 'tone' is 'hihg'.*'high'"):
        read("strokes: 3, tone: hihg")
    with pytest.raises(PipelineError, match=r"needs the option 'strokes'; write .* strokes: 12"):
        read("tone: low")


@pytest.mark.usefixtures("bell")
def test_a_toy_connector_is_built_and_read() -> None:
    made = build_source(SourceSpec("bell", {"strokes": 3, "tone": "low"}), "/")
    [partition] = made.partitions()
    chunk = made.open(partition).read(0, 2)
    assert chunk.values == [{"n": 0, "tone": "low"}, {"n": 1, "tone": "low"}]


@pytest.mark.usefixtures("bell")
def test_a_toy_connector_is_in_the_schema_and_a_class_of_python() -> None:
    check = Draft202012Validator(pipeline_schema())
    right = {"pipeline": "p", "streams": {"s": {"source": {"bell": {"strokes": 3}}}}}
    wrong = {"pipeline": "p", "streams": {"s": {"source": {"bell": {"stroke": 3}}}}}
    assert check.is_valid(right)
    assert not check.is_valid(wrong)
    text = kinds.source_of("BellSource", kinds.kinds()["BellSource"])
    assert "class BellSource(DeclaredSource):" in text
    assert "    strokes: int\n" in text
