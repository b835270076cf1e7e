from __future__ import annotations

from typing import Any

import pytest

from millwheel.language.spec.reading.document import parse
from millwheel.language.spec.reading.kinds import Kind, Kinds, blame, read_kind
from millwheel.language.spec.reading.problems import Problems
from millwheel.language.spec.reading.reader import NodeReader


def read(text: str) -> tuple[Kind | None, NodeReader]:
    problems = Problems("p.yaml")
    tree = parse(text, problems)
    assert tree is not None
    reader = NodeReader(problems)
    kinds = Kinds("source", ["files"], lambda: ["files", "generator"])
    return read_kind(reader, tree, kinds, "/home"), reader


def test_what_is_built_in_is_read_without_a_look_at_installed_packages() -> None:
    tree = parse("files: {path: a}", problems := Problems("p.yaml"))
    assert tree is not None
    kinds = Kinds("source", ["files"], lambda: pytest.fail("all packages were looked at"))
    kind = read_kind(NodeReader(problems), tree, kinds, "/home")
    assert kind is not None
    assert kind.name == "files"


@pytest.mark.parametrize(
    ("text", "options"),
    [
        ("files: {path: a, n: 1}", {"path": "/home/a", "n": 1}),
        ("files: {path: /abs}", {"path": "/abs"}),
        ("files: {path: [a, /b]}", {"path": ["/home/a", "/b"]}),
        ("files: {path: s3://bucket/x}", {"path": "s3://bucket/x"}),
        ("generator: {}", {}),
        ("generator", {}),
    ],
)
def test_a_kind_and_its_options_with_paths_made_absolute(text: str, options: Any) -> None:
    kind, reader = read(text)
    assert kind is not None
    assert kind.options == options
    assert not reader.problems.found


@pytest.mark.parametrize("text", ["{files: {}, generator: {}}", "[files]", "5", "{}"])
def test_one_kind_is_named_and_no_other_number(text: str) -> None:
    kind, reader = read(text)
    assert kind is None
    [problem] = reader.problems.found
    assert "names one source with its options" in problem


def test_what_a_factory_refuses_is_told_at_the_option_that_it_names() -> None:
    kind, reader = read("files:\n  path: a\n  rate: 5\n")
    assert kind is not None
    blame(reader, kind, ValueError("'rate' is not an option of files"))
    blame(reader, kind, ValueError("files cannot be read"))
    assert reader.problems.found == {
        "p.yaml:3: files.rate: 'rate' is not an option of files": 3,
        "p.yaml:1: files: files cannot be read": 1,
    }
