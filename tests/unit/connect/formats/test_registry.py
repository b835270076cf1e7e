"""Schemas by id: kept, waited for, and refused in words."""

from __future__ import annotations

import threading
from typing import Any

import pytest
from confluent_kafka.schema_registry import Schema, SchemaRegistryError

from millwheel.connect.formats.options import RegistryOptions
from millwheel.connect.formats.registry import Registration, Registry, header, split
from millwheel.errors import ExhaustedError, RecordError, SetupError, UnavailableError
from tests.fakes.schema_registry import FakeRegistryClient


def registry(client: Any, **more: Any) -> Registry:
    return Registry(RegistryOptions("http://r:1", **more), client)


def test_a_message_begins_with_a_zero_byte_and_the_id() -> None:
    assert split(header(2**32 - 1) + b"rest") == 2**32 - 1
    for wrong in (b"", b"\0\0\0\1", b"\1\0\0\0\1x"):
        with pytest.raises(RecordError, match="does not begin with the id"):
            split(wrong)


def test_an_answer_that_takes_long_stops_nobody_and_comes_later(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("millwheel.connect.formats.registry._PATIENCE_S", 0.001)
    answer = threading.Event()

    class Slow(FakeRegistryClient):
        def get_schema(self, number: int) -> Schema:
            answer.wait(10)
            return super().get_schema(number)

    client = Slow()
    number = client.register("t", "{}")
    found = registry(client)
    for _ in range(2):
        with pytest.raises(ExhaustedError, match="has not answered yet"):
            found.schema(number)
    answer.set()
    monkeypatch.setattr("millwheel.connect.formats.registry._PATIENCE_S", 10)
    assert found.schema(number).text == "{}"
    assert client.asked == [number]


@pytest.mark.parametrize(
    ("code", "told"),
    [
        (409, "not compatible with what is there"),
        (401, "refuses user and password"),
        (422, "refuses the schema for the subject 't-value': invalid"),
    ],
)
def test_a_refused_schema_is_a_sentence(code: int, told: str) -> None:
    client = FakeRegistryClient()
    client.refuses = SchemaRegistryError(code, code, "invalid")
    with pytest.raises(SetupError, match=told):
        Registration(registry(client), "t-value", "AVRO", "{}").check()


def test_without_leave_to_register_the_schema_must_be_there() -> None:
    client = FakeRegistryClient()
    looks_up = registry(client, auto_register=False)
    with pytest.raises(SetupError, match="has no such schema under the subject 't'; register it"):
        looks_up.registered("t", "AVRO", '"long"')
    number = client.register("t", '"long"')
    assert looks_up.registered("t", "AVRO", '"long"') == number


@pytest.mark.parametrize("code", [0, 500, 429])
def test_a_registry_that_is_away_is_asked_again_by_a_sink(
    code: int, caplog: pytest.LogCaptureFixture
) -> None:
    client = FakeRegistryClient()
    client.away = code == 0
    client.refuses = SchemaRegistryError(code, code, "busy") if code else None
    registration = Registration(registry(client), "t", "AVRO", '"long"')
    for _ in range(3):
        with pytest.raises(UnavailableError, match="does not answer"):
            registration.number()
    assert caplog.text.count("nothing is lost meanwhile") == 1
    with pytest.raises(SetupError, match="Check the option 'registry'"):
        registration.check()
    client.away, client.refuses = False, None
    assert registration.number() == 1


def test_the_makers_own_client_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    found = Registry(RegistryOptions("mock://here", user="u", password="p"))
    assert found.registered("t", "AVRO", '{"type": "string"}') == 1
    assert found.schema(1).kind == "AVRO"
    with pytest.raises(RecordError, match="has no schema with the id 7"):
        found.schema(7)
    with pytest.raises(ValueError, match="option 'registry'"):
        Registry(RegistryOptions("http://r:1", config={"no.such.setting": 1}))
    monkeypatch.setitem(__import__("sys").modules, "confluent_kafka.schema_registry", None)
    with pytest.raises(SetupError, match=r"pip install 'millwheel-spark\[registry\]'"):
        Registry(RegistryOptions("http://r:1"))
