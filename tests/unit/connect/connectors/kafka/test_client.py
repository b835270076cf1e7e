from __future__ import annotations

import logging
import sys

import pytest
from confluent_kafka import KafkaError, KafkaException

from millwheel.connect.connectors.external.meanings import Meaning, RowToBlameError, UnknownError
from millwheel.connect.connectors.kafka import client
from millwheel.connect.connectors.kafka.client import Complaints, check_config, library, settings
from millwheel.errors import MillwheelError, SetupError, UnavailableError


class Error:
    def __init__(self, name: str, text: str) -> None:
        self._name, self._text = name, text

    def name(self) -> str:
        return self._name

    def str(self) -> str:
        return self._text


def test_without_the_package_it_is_told_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "confluent_kafka", None)
    with pytest.raises(SetupError, match=r"pip install 'millwheel-spark\[kafka\]'"):
        library()


@pytest.mark.parametrize(
    "name", ["transactional.id", "enable.auto.commit", "isolation.level", "bootstrap.servers"]
)
def test_what_exactly_once_rests_on_is_nobodys_option(name: str) -> None:
    with pytest.raises(
        ValueError, match=f"option 'config' sets {name}, which the connector decides"
    ):
        check_config({name: "x"})


def test_other_settings_are_the_users_and_plain() -> None:
    check_config({"compression.type": "zstd", "linger.ms": 5})
    with pytest.raises(ValueError, match="a is not a text, number or boolean"):
        check_config({"a": []})
    assert (
        settings("b:1", {"linger.ms": 5, "client.id": "mine"}, lambda error: None)["client.id"]
        == "mine"
    )


def test_a_broken_connection_is_remembered_and_one_warning_says_the_rest(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.WARNING)
    complaints = Complaints("b:1")
    complaints(Error("_TRANSPORT", "refused"))  # type: ignore[arg-type]
    assert (complaints.because(), caplog.records) == (": refused", [])
    for _ in range(3):
        complaints(Error("_AUTHENTICATION", "wrong password"))  # type: ignore[arg-type]
    assert len(caplog.records) == 1
    assert complaints.because() == ": wrong password"
    complaints(Error("_ALL_BROKERS_DOWN", "all are down"))  # type: ignore[arg-type]
    assert complaints.hopeless == "wrong password", "the cause, not what follows from it"


def test_a_sink_which_says_itself_that_rows_wait_keeps_complaints_for_its_sentence(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.WARNING)
    complaints = Complaints("b:1", aloud=False)
    complaints(Error("_ALL_BROKERS_DOWN", "all are down"))  # type: ignore[arg-type]
    assert (complaints.because(), caplog.records) == (": all are down", [])


@pytest.mark.parametrize(
    ("code", "meaning", "kind"),
    [
        (KafkaError._ALL_BROKERS_DOWN, Meaning.ABSENT, UnavailableError),
        (KafkaError.NOT_ENOUGH_REPLICAS, Meaning.ABSENT, UnavailableError),
        (KafkaError._FENCED, Meaning.ABSENT, UnavailableError),
        (KafkaError._PURGE_QUEUE, Meaning.ABSENT, UnavailableError),
        (KafkaError.MSG_SIZE_TOO_LARGE, Meaning.ROWS, RowToBlameError),
        (KafkaError._UNKNOWN_PARTITION, Meaning.ROWS, RowToBlameError),
        (KafkaError.TOPIC_AUTHORIZATION_FAILED, Meaning.MEND, SetupError),
        (KafkaError._SSL, Meaning.MEND, SetupError),
        (KafkaError.UNKNOWN, Meaning.UNKNOWN, UnknownError),
    ],
)
def test_an_error_of_the_library_means_one_thing_and_is_told_as_such(
    code: int, meaning: Meaning, kind: type[MillwheelError]
) -> None:
    error = KafkaError(code, "words of the broker")
    assert client.meaning_of(error) is meaning
    told = client.in_words(KafkaException(error), "Kafka at b:1")
    assert type(told) is kind
    assert str(told).startswith("Kafka at b:1: words of the broker")


def test_an_error_in_no_table_that_may_be_tried_again_is_an_absence() -> None:
    assert (
        client.meaning_of(KafkaError(KafkaError.UNKNOWN, "odd", retriable=True)) is Meaning.ABSENT
    )


def test_no_name_has_two_meanings() -> None:
    names = [name for listed in client._BY_NAME.values() for name in listed.split()]
    assert len(names) == len(set(names))
    assert not set(names) & (client.FENCED | client.BESIDE)


def test_an_error_that_is_not_the_librarys_is_judged_by_its_class_and_ours_stays() -> None:
    told = client.in_words(BufferError("two\nlines"), "Kafka at b:1")
    assert (type(told), str(told)) == (UnknownError, "Kafka at b:1: BufferError: two lines")
    assert client.in_words(told, "elsewhere") is told
