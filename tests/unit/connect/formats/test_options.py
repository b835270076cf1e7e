"""``format:`` as it is written, and what is said about one that cannot work."""

from __future__ import annotations

import re
from typing import Any

import pytest

from millwheel.connect.formats.choice import MESSAGE_FORMATS
from millwheel.connect.formats.options import (
    AvroOptions,
    Format,
    NoOptions,
    TextOptions,
    read_format,
)


def test_a_name_and_a_map_of_a_name_are_the_same() -> None:
    assert read_format("json", MESSAGE_FORMATS) == Format("json", NoOptions())
    assert read_format({"text": None}, MESSAGE_FORMATS) == Format("text", TextOptions())
    found = read_format(
        {"avro": {"schema": "a.avsc", "registry": {"url": "http://h:1"}}}, MESSAGE_FORMATS
    ).options
    assert isinstance(found, AvroOptions)
    assert found.registry is not None
    assert (found.schema, found.registry.auto_register) == ("a.avsc", True)


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ("avr", r"option 'format' is 'avr' \(did you mean 'avro'\?\); write one of json, csv"),
        ({"avro": {}, "csv": {}}, "names one format"),
        ({"avro": 3}, "avro has a map of options"),
        (
            {"avro": {"shema": "x"}},
            r"the format 'avro' has no option 'shema'; did you mean 'schema'\?",
        ),
        ({"avro": {"decimals": "txt"}}, r"'decimals' is 'txt' \(did you mean 'text'\?\)"),
        ({"avro": {"registry": {"url": "h:1"}}}, "write for example http://127.0.0.1:8081"),
        ({"avro": {"registry": {}}}, "option 'format'.*'registry'.*url"),
        ({"avro": {"registry": {"url": "http://h", "user": "u"}}}, "one of user and password"),
        ({"csv": {"columns": ["a", "a"]}}, "names a column twice"),
        ({"csv": {"delimiter": ";;"}}, "write one character"),
        ({"protobuf": {}}, "needs the option 'message'; write for example message: shop.Click"),
        ({"protobuf": {"message": "shop.Click"}}, "write module:Class, or name a descriptor file"),
        ({"debezium": {"encoding": "xml"}}, "option 'encoding' is 'xml'"),
        ({"json": {"pretty": True}}, "has no option 'pretty'"),
    ],
)
def test_what_cannot_work_is_a_sentence_that_names_the_option(given: Any, told: str) -> None:
    with pytest.raises(ValueError, match=told) as ex:
        read_format(given, MESSAGE_FORMATS)
    assert re.match("option 'format'", str(ex.value))
