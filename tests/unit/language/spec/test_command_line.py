"""Paths typed on a command line are relative to where the person stands."""

from __future__ import annotations

from pathlib import Path

import pytest

from millwheel.errors import PipelineError
from millwheel.language.spec import resolve_params


@pytest.fixture
def pipeline(tmp_path: Path) -> str:
    file = tmp_path / "p.yaml"
    file.write_text(
        'streams: {a: {source: {files: {path: ["${one}", "x/${two}", "${ three }"], format:'
        ' "${format}"}}}}\nsinks: {b: {files: {path: "${out}/b"}}}\n'
    )
    return str(file)


def test_parameters_that_begin_a_path_become_absolute(pipeline: str) -> None:
    params = {"one": "1.log", "two": "2", "three": "/3.log", "format": "csv", "out": "s3://bucket"}
    assert resolve_params(pipeline, params, {}, "/here") == {
        "one": "/here/1.log", "two": "2", "three": "/3.log", "format": "csv", "out": "s3://bucket",
    }  # fmt: skip


def test_what_is_mentioned_of_the_environment_comes_along(pipeline: str) -> None:
    found = resolve_params(pipeline, {"other": "x"}, {"one": "a", "HOME": "/root"}, "/here")
    assert found == {"one": "/here/a", "other": "x"}


def test_a_file_that_is_no_yaml_gives_no_paths(tmp_path: Path) -> None:
    file = tmp_path / "p.yaml"
    file.write_text("path: [${x}")
    assert resolve_params(str(file), {"x": "a"}, {}, "/here") == {"x": "a"}
    with pytest.raises(PipelineError):
        resolve_params(str(tmp_path / "none.yaml"), {}, {}, "/here")
