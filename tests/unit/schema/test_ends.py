from __future__ import annotations

from typing import Any

from jsonschema import Draft202012Validator

from millwheel.connectors import lookups
from millwheel.schema.ends import LOOKUP_FORMS, SINK_FORMS, SOURCE_FORMS, end
from millwheel.schema.words import WORDS
from millwheel.sinks import BUILT_IN as SINKS
from millwheel.sources import BUILT_IN as SOURCES


def test_every_built_in_kind_has_a_form() -> None:
    assert SOURCE_FORMS.keys() == {*SOURCES}
    assert SINK_FORMS.keys() == {*SINKS}
    assert LOOKUP_FORMS.keys() == {*lookups.BUILT_IN}


def test_numbers_may_be_parameters_and_descriptions_are_plain() -> None:
    found: dict[str, Any] = {}
    schema = {**end(SOURCE_FORMS, found, ["ledger"]), "$defs": {**WORDS, **found}}
    check = Draft202012Validator(schema)
    for right in ("generator", {"generator": None}, {"generator": {"count": "${n}", "rate": 3}}, {"ledger": {"a": 1}}):
        assert check.is_valid(right), right
    for wrong in ("generate", {"generator": {"count": "3"}}, {"injection": {"a": 1}}, {"kafka": None}, {}):
        assert not check.is_valid(wrong), wrong
    assert all("``" not in struct.get("description", "") for struct in found.values())
