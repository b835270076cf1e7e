from __future__ import annotations

import pytest
from confluent_kafka import KafkaError, KafkaException

from millwheel.connect.connectors.external.meanings import Meaning, RowToBlameError, UnknownError
from millwheel.connect.connectors.kafka import errors
from millwheel.errors import MillwheelError, SetupError, UnavailableError


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
    assert errors.meaning_of(error) is meaning
    told = errors.in_words(KafkaException(error), "Kafka at b:1")
    assert type(told) is kind
    assert str(told).startswith("Kafka at b:1: words of the broker")


def test_an_error_in_no_table_that_may_be_tried_again_is_an_absence() -> None:
    assert (
        errors.meaning_of(KafkaError(KafkaError.UNKNOWN, "odd", retriable=True)) is Meaning.ABSENT
    )


def test_no_name_has_two_meanings() -> None:
    names = [name for listed in errors._BY_NAME.values() for name in listed.split()]
    assert len(names) == len(set(names))
    assert not set(names) & (errors.FENCED | errors.BESIDE)


def test_an_error_that_is_not_the_librarys_is_judged_by_its_class_and_ours_stays() -> None:
    told = errors.in_words(BufferError("two\nlines"), "Kafka at b:1")
    assert (type(told), str(told)) == (UnknownError, "Kafka at b:1: BufferError: two lines")
    assert errors.in_words(told, "elsewhere") is told
