"""``${name}``: where values come from, which type they get, and that they never become YAML."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millwheel.errors import PipelineError
from millwheel.language.spec import resolve_params
from millwheel.language.spec.parameters import Parameters, references
from millwheel.language.spec.reading.document import parse
from millwheel.language.spec.reading.problems import Problems


def filled(
    text: str, params: dict[str, str], environ: dict[str, str] | None = None
) -> tuple[Any, list[str]]:
    problems = Problems("f.yaml")
    tree = parse(text, problems)
    assert tree is not None
    Parameters(params, environ or {}, problems).replace(tree)
    return tree.data(), list(problems.found)


def test_what_is_set_comes_before_the_environment_before_the_default() -> None:
    text = 'a: "${x}/y"\nb: ${z:-d}'
    assert filled(text, {"x": "1"}, {"x": "2", "z": "3"})[0] == {"a": "1/y", "b": 3}
    assert filled(text, {}, {"x": "2"})[0] == {"a": "2/y", "b": "d"}


def test_an_empty_value_takes_the_default() -> None:
    assert filled("a: ${x:-7}", {"x": ""})[0] == {"a": 7}


def test_a_value_that_is_one_parameter_has_the_type_of_its_text() -> None:
    assert filled('[ "${x}", "${y}", "v${x}", "${x}" ]', {"x": "4", "y": "true"})[0] == [
        4,
        True,
        "v4",
        4,
    ]


def test_a_doubled_dollar_is_a_plain_one() -> None:
    assert filled('a: "$${x}"', {})[0] == {"a": "${x}"}


@given(st.text(max_size=30))
def test_a_value_is_data_whatever_it_holds(value: str) -> None:
    data, problems = filled('a: "-${x}-"\nb: 1', {"x": value})
    assert data == {"a": f"-{value}-", "b": 1}
    assert not problems


def test_an_unknown_parameter_names_line_field_and_the_option_to_give() -> None:
    _, (found,) = filled('a: 1\nb:\n  c: "${inptu}"', {"input": "x"})
    assert (
        found == "f.yaml:3: b.c: ${inptu} has no value, but there is 'input'; give one with --set"
        " inptu=VALUE, or write a default: ${inptu:-default}"
    )


@pytest.mark.parametrize(
    "text",
    ['a: "${}"', 'a: "${1x}"', 'a: "${x y}"', 'a: "${x"', 'a: "${x:default}"', 'a: "${a.b}"'],
)
def test_what_looks_like_a_parameter_and_is_none_is_refused(text: str) -> None:
    _, (found,) = filled(text, {"x": "1"})
    assert "is not a parameter; write ${name}" in found


def test_names_are_not_replaced() -> None:
    _, (found,) = filled('"${x}": 1', {"x": "1"})
    assert "a name cannot be a ${parameter}" in found


def test_a_value_cannot_grow_without_bounds() -> None:
    _, (found,) = filled(f'a: "{"${x}" * 200}"', {"x": "y" * 1000})
    assert "200000 characters" in found


def test_references_are_found_without_parsing() -> None:
    assert references("a: ${x} ${ y :-z}\n$${no} ${bad-name-} {") == {"x", "y", "bad-name-"}


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
