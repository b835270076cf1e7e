"""The document and the page."""

from __future__ import annotations

import re

import msgspec

from millwheel.engine.queries.model import Answer
from millwheel.engine.queries.replies import document
from millwheel.tools.gateway.pages import DOCUMENT, PAGE
from millwheel.tools.gateway.questions import (
    DEADLINE_MS,
    MAX_BATCH,
    MOST_MS,
    AskedQuestion,
    QueryBatch,
)


def test_the_document_has_every_field_of_questions_and_answers() -> None:
    schemas = DOCUMENT["components"]["schemas"]
    assert list(schemas["Question"]["properties"]) == [
        each.name for each in msgspec.structs.fields(AskedQuestion)
    ]
    assert set(schemas["Batch"]["properties"]) == {
        each.name for each in msgspec.structs.fields(QueryBatch)
    }
    assert schemas["Batch"]["properties"]["queries"]["maxItems"] == MAX_BATCH
    deadline = schemas["Batch"]["properties"]["deadline_ms"]
    assert (deadline["default"], deadline["maximum"]) == (DEADLINE_MS, MOST_MS)
    told = document(Answer({}, None, None, 0, True, "", 0, 0))
    assert set(schemas["Answer"]["properties"]) == set(told)


def test_every_reference_of_the_document_leads_somewhere() -> None:
    text = msgspec.json.encode(DOCUMENT).decode()
    for name in re.findall(r'"#/components/schemas/(\w+)"', text):
        assert name in DOCUMENT["components"]["schemas"]


def test_the_page_asks_nobody_else() -> None:
    assert not re.findall(r"https?://|src=|@import", PAGE)
