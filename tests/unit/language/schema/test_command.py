from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from millwheel.errors import SetupError
from millwheel.language.schema.command import schema_text, text_of, write_schema
from millwheel.language.schema.parts import pipeline_schema
from millwheel.tools.cli.app import app
from tests.rooms import HOUSE


def test_the_published_schema_is_the_one_of_the_code() -> None:
    published = (HOUSE / "docs" / "pipeline.schema.json").read_text(encoding="utf-8")
    assert published == text_of(pipeline_schema()), (
        "run: millwheel schema docs/pipeline.schema.json"
    )


def test_the_command_prints_or_writes_it(tmp_path: Path) -> None:
    file = str(tmp_path / "here.json")
    assert f"$schema={file}" in CliRunner().invoke(app, ["schema", file]).output
    assert Path(file).read_text() == schema_text() == CliRunner().invoke(app, ["schema"]).output
    with pytest.raises(SetupError, match="cannot be written"):
        write_schema(str(tmp_path / "none" / "x.json"))


def test_every_example_names_the_published_schema() -> None:
    for path in HOUSE.glob("examples/*/*.yaml"):
        first = path.read_text().splitlines()[0]
        assert first.startswith("# yaml-language-server: $schema="), path
        assert (
            path.parent / first.partition("=")[2]
        ).resolve() == HOUSE / "docs" / "pipeline.schema.json"
