"""The public face of injection: ids, values and errors. What is sent when is in
test_inject.py."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path

import pytest

from millwheel.adapters.grpc.injection_client import OutsideRecord
from millwheel.client import AsyncInjector, Injector
from millwheel.errors import SetupError
from millwheel.tools.client.injector import as_json, numbered


def injector(field: str) -> Injector:
    """One without a run."""
    made = object.__new__(Injector)
    made._field, made._ids, made._lock = field, numbered(), threading.Lock()
    return made


def test_a_record_is_named_by_its_field_by_the_caller_or_by_a_number_of_its_own() -> None:
    by_field = injector("id")
    lines = [b'{"id": "x"}', b'{"id": 7}', b"{}", b"no record"]
    named = by_field.records(lines)
    assert [record.id for record in named[:2]] == ["x", "7"]
    assert named[2].id != named[3].id
    assert by_field.records([b"{}"], ["mine"]) == [OutsideRecord("mine", b"{}")]
    first, second = injector("").records([b"{}", b"{}"])
    assert first.id != second.id
    assert first.id.partition(":")[0] != injector("").records([b"{}"])[0].id.partition(":")[0]


def test_ids_that_name_nothing_are_refused() -> None:
    with pytest.raises(SetupError, match="2 records have 1 ids"):
        injector("").records([b"{}", b"{}"], ["a"])
    with pytest.raises(SetupError, match="empty id"):
        injector("").records([b"{}"], [""])


def test_a_value_is_json_text_or_what_json_can_hold() -> None:
    assert as_json({"a": 1}) == b'{"a":1}'
    assert as_json(b"[1]") == b"[1]"
    with pytest.raises(SetupError, match="type object cannot be written as JSON"):
        as_json(object())


def test_where_no_run_goes_on_there_is_a_sentence(tmp_path: Path) -> None:
    with pytest.raises(SetupError, match="is not the root of a run"):
        Injector(str(tmp_path), "hits")


def test_an_asynchronous_client_sends_within_its_context_only(tmp_path: Path) -> None:
    with pytest.raises(SetupError, match="async with"):
        asyncio.run(AsyncInjector(str(tmp_path), "hits").send([{}]))


def test_a_record_carries_the_trace_of_its_sender() -> None:
    assert injector("").records([b"{}"], ["a"], ["00-x"]) == [OutsideRecord("a", b"{}", "00-x")]
    assert injector("").records([b"{}"], ["a"])[0].trace == ""
