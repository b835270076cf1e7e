"""Writes whose answer was lost are settled by what stands there."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from kazoo.exceptions import BadVersionError, ConnectionLoss, NodeExistsError, NoNodeError

from millwheel.adapters.zookeeper.coordination import _check_hosts, _checked
from millwheel.adapters.zookeeper.session import Znode, ZooKeeperSession
from millwheel.errors import ConflictError, InvariantError, SetupError


class Answer:
    def __init__(self, outcome: Any) -> None:
        self._outcome = outcome

    def get(self, timeout: float) -> Any:
        if isinstance(self._outcome, Exception):
            raise self._outcome
        return self._outcome


class Client:
    """Gives the outcomes that the test wants, one for each call, whatever it is."""

    client_id = (77, b"")

    def __init__(self, *outcomes: Any) -> None:
        self.outcomes = list(outcomes)

    def __getattr__(self, name: str) -> Any:
        return lambda *given, **more: Answer(self.outcomes.pop(0))


def session(*outcomes: Any, stands: Znode | None = None) -> ZooKeeperSession:
    made = object.__new__(ZooKeeperSession)
    made.__dict__.update(
        _client=Client(*outcomes),
        _patience_s=1.0,
        _lost=False,
        _closed=False,
        _gone=False,
        _hosts="z:1",
        _connected=SimpleNamespace(wait=lambda seconds: True),
    )
    made.read = lambda path, watch=None: stands  # type: ignore[method-assign]
    return made


LOST = ConnectionLoss


def test_a_node_of_somebody_else_is_not_ours() -> None:
    assert session("/a").create("/a", b"x")
    assert not session(NodeExistsError()).create("/a", b"x"), "the first try was answered"


@pytest.mark.parametrize(
    ("stands", "ephemeral", "ours"),
    [
        (Znode(b"x", 0, 77), True, True),
        (Znode(b"x", 0, 78), True, False),
        (Znode(b"x", 0, 0), False, True),
        (Znode(b"y", 0, 77), True, False),
        (None, False, False),
    ],
)
def test_a_create_whose_answer_was_lost_is_ours_if_our_bytes_stand_there(
    stands: Znode | None, ephemeral: bool, ours: bool
) -> None:
    assert session(LOST(), NodeExistsError(), stands=stands).create("/a", b"x", ephemeral) is ours


def test_a_replace_whose_answer_was_lost_is_ours_if_our_bytes_are_the_next_version() -> None:
    assert session(LOST(), BadVersionError(), stands=Znode(b"x", 4, 0)).replace("/a", b"x", 3) == 4
    for outcomes, stands, words in (
        ((BadVersionError(),), Znode(b"x", 4, 0), "has version 4, expected version 3"),
        ((LOST(), BadVersionError()), Znode(b"y", 4, 0), "has version 4"),
        ((LOST(), NoNodeError()), None, "is gone"),
    ):
        with pytest.raises(ConflictError, match=words):
            session(*outcomes, stands=stands).replace("/a", b"x", 3)


def test_a_node_that_does_not_exist_is_deleted_already() -> None:
    session(LOST(), NoNodeError()).delete("/a")


# coordination.py


@pytest.mark.parametrize("hosts", ["a:1", "a:1,b:2", "a:1/x", "a:1,b:2/x/y-z.1", "a:1/"])
def test_addresses_with_and_without_a_chroot(hosts: str) -> None:
    servers, slash, chroot = hosts.partition("/")
    _check_hosts(hosts, servers, slash + chroot)


@pytest.mark.parametrize(
    "hosts", ["", "a", "a:x", "a:1,", "a:1 b:2", "a:1//x", "a:1/x y", "a:1/../x y"]
)
def test_what_is_no_address_is_told_with_its_form(hosts: str) -> None:
    servers, slash, chroot = hosts.partition("/")
    with pytest.raises(SetupError, match="is not of the form host:port,host:port/chroot"):
        _check_hosts(hosts, servers, slash + chroot)


@pytest.mark.parametrize("name", ["", ".", "..", "a/b", "a b", "x" * 129, "ä"])
def test_a_name_is_one_part_of_a_path(name: str) -> None:
    with pytest.raises(InvariantError, match="cannot be a name in ZooKeeper"):
        _checked(name)
    assert _checked("w0-1.a_b") == "w0-1.a_b"
