"""YAML as nodes: values, lines, limits, and what is refused."""

from __future__ import annotations

import math
import time
from pathlib import Path

import pytest

from millwheel.errors import PipelineError
from millwheel.language.spec.reading.document import parse, read_text, scalar
from millwheel.language.spec.reading.nodes import MAX_BYTES, MAX_NODES, ForeignLine, YamlNode
from millwheel.language.spec.reading.problems import Problems


def problem_of(text: str) -> str:
    problems = Problems("f.yaml")
    parse(text, problems)
    (found,) = problems.found
    return found


def tree_of(text: str) -> YamlNode:
    problems = Problems("f.yaml")
    tree = parse(text, problems)
    assert tree is not None
    assert not problems.found
    return tree


@pytest.mark.parametrize(
    ("text", "value"),
    [("4", 4), ("-4", -4), ("1_000", 1000), ("012", 12), ("2.5", 2.5), (".5", 0.5), ("1e3", 1000.0)]
    + [
        ("true", True),
        ("False", False),
        ("null", None),
        ("~", None),
        ("", None),
        (".inf", math.inf),
        ("-.inf", -math.inf),
    ]
    + [(text, text) for text in ("yes", "on", "0x1f", "1.2.3", "1m", "2024-01-01", "+")],
)
def test_scalars_have_the_types_of_yaml_1_2(text: str, value: object) -> None:
    assert scalar(text) == value
    assert type(scalar(text)) is type(value)


def test_a_number_with_thousands_of_digits_is_text() -> None:
    assert scalar("9" * 5000) == "9" * 5000


def test_quotes_make_text() -> None:
    assert tree_of("[1, '1', \"1\"]").data() == [1, "1", "1"]


def test_nodes_know_their_lines_and_paths() -> None:
    tree = tree_of("a:\n  b: 1\n  c:\n    - x\n    - {d: 2}\n")
    inner = tree.value["a"].value["c"]
    assert (tree.value["a"].line, inner.line, inner.path) == (1, 3, "a.c")
    assert (inner.value[1].line, inner.value[1].value["d"].path) == (5, "a.c[1].d")


def test_aliases_repeat_values_at_their_own_place() -> None:
    tree = tree_of("a: &x {b: [1]}\nc: *x\n")
    assert tree.data() == {"a": {"b": [1]}, "c": {"b": [1]}}
    assert (tree.value["c"].path, tree.value["c"].value["b"].path) == ("c", "c.b")


def test_a_name_given_twice_is_a_problem_with_both_lines() -> None:
    assert (
        problem_of("a:\n  b: 1\n  c: 2\n  b: 3")
        == "f.yaml:4: a.b: this name is already in line 2; remove or rename one"
    )


@pytest.mark.parametrize(
    ("text", "line", "hint"),
    [
        ("a: b: c", 1, "Check the indentation"),
        ("a:\n\t- x", 2, "spaces, not with tabs"),
        ("a: [1, 2", 1, "comma or bracket"),
        ("a: {b: ${x}}", 1, 'quotes around parameters: "${name}"'),
        ("a: 1\nb: 'c\nd: 2", 2, "found unexpected end of stream"),
        ("a: 1\n b: 2", 2, "Check"),
        ("a: *b", 1, "*b refers to nothing"),
        ("a: &b [*b]", 1, "*b refers to nothing"),
        ("a: !!python/object:os.system x", 1, "plain data"),
        ("a: !own x", 1, "plain data"),
        ("a: 1\n---\nb: 1", 2, "one pipeline"),
        ("? [a]\n: b", 1, "cannot be a name"),
        ("<<: {a: 1}", 1, "merging maps"),
        ("a: \x01", 1, "does not allow"),
        ("", 1, "empty"),
        ("# nothing", 1, "empty"),
    ],
)
def test_what_cannot_be_read_is_one_problem_with_line_and_advice(
    text: str, line: int, hint: str
) -> None:
    found = problem_of(text)
    assert found.startswith(f"f.yaml:{line}: ")
    assert hint in found


@pytest.mark.parametrize(
    "text",
    ["[" * 100_000, "{" * 100_000, "- " * 100_000, "? " * 100_000, "[a," * 60_000,
    "- a\n" * 60_000, "a: b\n" * 40_000,
     "k: [" + "a: b, " * 30_000, "!" * 200_000, "&a " * 60_000, "x" * 200_000, "'" * 200_000],
)  # fmt: skip
def test_no_file_takes_long(text: str) -> None:
    start = time.process_time()
    parse(text, Problems("f.yaml"))
    assert time.process_time() - start < 10  # about one


def test_aliases_cannot_grow_a_file_without_bounds() -> None:
    lines = ["a0: &x0 [1, 2, 3]"] + [
        f"a{i}: &x{i} [{', '.join([f'*x{i - 1}'] * 9)}]" for i in range(1, 30)
    ]
    assert f"more than {MAX_NODES} values" in problem_of("\n".join(lines))


def test_a_file_too_large_or_in_another_encoding_is_refused_with_its_name(tmp_path: Path) -> None:
    file = tmp_path / "p.yaml"
    file.write_bytes(b"#" * (MAX_BYTES + 1))
    with pytest.raises(PipelineError, match=r"p\.yaml: the file is too large; the limit is 256 kB"):
        read_text(str(file))
    file.write_bytes("a: 1\nb: 2\nc: é".encode("latin-1"))
    with pytest.raises(PipelineError, match=r"p\.yaml:3: byte 0xe9 is not UTF-8"):
        read_text(str(file))


def test_a_byte_order_mark_is_no_part_of_the_text(tmp_path: Path) -> None:
    file = tmp_path / "p.yaml"
    file.write_bytes(b"\xef\xbb\xbfa: 1")
    assert read_text(str(file)) == "a: 1"
    with pytest.raises(PipelineError, match="cannot be read"):
        read_text("a\0b")


# nodes.py


def test_a_tree_is_plain_data_again() -> None:
    tree = YamlNode({"a": YamlNode([YamlNode(1, 1), YamlNode({"b": YamlNode(None, 2)}, 2)], 1)}, 1)
    assert tree.data() == {"a": [1, {"b": None}]}


def test_a_path_leads_to_a_value() -> None:
    top = YamlNode({}, 1)
    assert top.child_path("streams") == "streams"
    assert YamlNode([], 1, "streams").child_path(0) == "streams[0]"
    assert YamlNode({}, 1, "streams[0]").child_path("x") == "streams[0].x"


@pytest.mark.parametrize(
    ("value", "words"), [({}, "a map"), ([], "a list"), (None, "nothing"), ("x", "'x'"), (5, "5")]
)
def test_what_a_value_is_in_words(value: object, words: str) -> None:
    node = YamlNode(value, 1)
    assert node.kind() == words
    assert [node.is_map, node.is_list, node.is_scalar].count(True) == 1


def test_a_long_value_is_cut_in_words() -> None:
    assert len(YamlNode("x" * 10_000, 1).kind()) <= 100


def test_a_line_of_another_file_is_a_number_that_knows_its_file() -> None:
    line = ForeignLine(7, "other.py")
    assert (line, line.file) == (7, "other.py")
