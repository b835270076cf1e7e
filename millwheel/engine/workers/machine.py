"""The facts about a machine in its environment: its host, its rack and the weight of its
workers."""

from __future__ import annotations

import re
import socket
from collections.abc import Mapping
from dataclasses import dataclass

from millwheel.errors import SetupError

HOST_VARIABLE = "MILLWHEEL_HOST"
"""The host, shared by workers that die together: the name of the machine (default), or of the
Kubernetes node."""
RACK_VARIABLE = "MILLWHEEL_RACK"
"""The rack, shared by hosts near each other: a rack or a zone."""
WEIGHT_VARIABLE = "MILLWHEEL_WEIGHT"
"""The weight of the workers of a machine."""
_MOST_WEIGHT = 100
"""Machines that differ by more do not work on one pipeline."""
_LABEL = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:/-]{0,252}")


@dataclass(frozen=True, slots=True)
class MachineFacts:
    """The machine of a worker. ``host`` and ``rack`` are labels ("": unknown): workers with the
    same host are expected to die together, and hosts with the same rack to be near each other.
    ``weight`` is how many times the shards of a worker of weight 1 its workers are to have."""

    host: str = ""
    rack: str = ""
    weight: int = 1


def machine_of(environment: Mapping[str, str]) -> MachineFacts:
    """The machine that an environment describes; an empty variable counts as none. Raises
    SetupError for an invalid one."""
    host = _label(HOST_VARIABLE, environment) or socket.gethostname()
    return MachineFacts(
        host, _label(RACK_VARIABLE, environment), _weight(environment.get(WEIGHT_VARIABLE, "1"))
    )


def _label(variable: str, environment: Mapping[str, str]) -> str:
    text = environment.get(variable, "")
    if text and not _LABEL.fullmatch(text):
        raise SetupError(
            f"{variable} is {text[:40]!r}; it is a name of at most 253 letters, digits and . _ : /"
            " -, and begins with a letter or a digit"
        )
    return text


def _weight(text: str) -> int:
    if not text.isdecimal() or not 1 <= int(text) <= _MOST_WEIGHT:
        raise SetupError(
            f"{WEIGHT_VARIABLE} is {text[:40]!r}; a weight is a whole number from 1 to"
            f" {_MOST_WEIGHT}"
        )
    return int(text)
