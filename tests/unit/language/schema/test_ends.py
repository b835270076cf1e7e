from __future__ import annotations

from typing import Any

from jsonschema import Draft202012Validator

from millwheel.connect.built_in import LOOKUPS, SINKS, SOURCES
from millwheel.language.schema.ends import end
from millwheel.language.schema.words import WORDS

_FILES = {"files": {"path": "x", "format": "xml"}}


def test_numbers_may_be_parameters_and_descriptions_are_plain() -> None:
    found: dict[str, Any] = {}
    schema = {**end(SOURCES, found, ["ledger"]), "$defs": {**WORDS, **found}}
    check = Draft202012Validator(schema)
    for form, right in (
        ({"csv": {"columns": ["a"]}}, True),
        ({"csv": {"column": 1}}, False),
        ({"avro": None}, True),
    ):
        assert (
            check.is_valid({"files": {"path": "x", "format": form, "names": "${names}"}}) is right
        )
    for right in (
        "generator",
        {"generator": None},
        {"generator": {"count": "${n}", "rate": 3}},
        {"ledger": {"a": 1}},
    ):
        assert check.is_valid(right), right
    for wrong in (
        "generate",
        {"generator": {"count": "3"}},
        {"injection": {"a": 1}},
        {"kafka": None},
        {},
        _FILES,
    ):
        assert not check.is_valid(wrong), wrong
    assert all("`" not in struct["description"] for struct in found.values())


def test_every_option_has_its_sentence_for_editors() -> None:
    found: dict[str, Any] = {}
    for known in (SOURCES, SINKS, LOOKUPS):
        end(known, found)
    for name, struct in found.items():
        for option, schema in struct["properties"].items():
            assert schema["description"], (name, option)
            assert "`" not in schema["description"]
            assert "](" not in schema["description"]
    group = found["KafkaSourceOptions"]["properties"]["until"]
    assert group["description"] == "latest: end after the messages that exist when the root is new"
