from __future__ import annotations

import pytest

from millwheel.language.spec.reading.nodes import ForeignLine, YamlNode


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
