from __future__ import annotations

import logging
import sys

import pytest

from millwheel.connect.connectors.kafka.client import Complaints, check_config, library, settings
from millwheel.errors import SetupError


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
    with pytest.raises(ValueError, match="a is no text, number or boolean"):
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
