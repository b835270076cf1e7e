"""The variables by which a machine describes itself."""

from __future__ import annotations

import socket

import pytest

from millwheel.engine.workers.machine import MachineFacts, machine_of
from millwheel.errors import SetupError


def test_a_machine_that_says_nothing_has_its_own_name_no_rack_and_weight_one() -> None:
    assert (
        machine_of({})
        == machine_of({"MILLWHEEL_HOST": "", "MILLWHEEL_RACK": ""})
        == MachineFacts(socket.gethostname())
    )


def test_host_rack_and_weight_are_those_of_the_environment() -> None:
    given = {"MILLWHEEL_HOST": "node-7.eu", "MILLWHEEL_RACK": "eu-west-1a", "MILLWHEEL_WEIGHT": "3"}
    assert machine_of(given) == MachineFacts("node-7.eu", "eu-west-1a", 3)


@pytest.mark.parametrize("text", ["0", "101", "-1", "2.5", "", "two", "٣٣٣"])
def test_a_weight_is_a_whole_number(text: str) -> None:
    with pytest.raises(
        SetupError, match=r"MILLWHEEL_WEIGHT is .*; a weight is a whole number from 1 to 100"
    ):
        machine_of({"MILLWHEEL_WEIGHT": text})


@pytest.mark.parametrize("text", ["a b", "a\n", ".a", "ü", "x" * 254])
@pytest.mark.parametrize("variable", ["MILLWHEEL_HOST", "MILLWHEEL_RACK"])
def test_a_label_is_a_short_name(variable: str, text: str) -> None:
    with pytest.raises(SetupError, match=rf"{variable} is .*; it is a name of at most 253 letters"):
        machine_of({variable: text})
