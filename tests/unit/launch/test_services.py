from __future__ import annotations

import socket
import stat
from pathlib import Path
from typing import Any

import pytest

from millwheel.errors import SetupError
from millwheel.launch.certificates import ROLES, make_set
from millwheel.launch.services import Services, ServiceTemplate, check_page, page_listener


class Process:
    """A child that ends when it is told to."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self.code: int | None = None

    def poll(self) -> int | None:
        return self.code

    def lived_s(self) -> float:
        return 1.5

    def last_words(self) -> str:
        return "no port"

    def terminate(self) -> None:
        self.code = -15

    def kill(self) -> None:
        self.code = -9

    def wait(self, seconds: float) -> int | None:
        return self.code


def test_a_service_is_told_where_it_belongs() -> None:
    argv = ServiceTemplate("/r", "z:1", "p").arguments("--workers", "3")
    told = dict(zip(argv[::2], argv[1::2], strict=True))
    assert told == {
        "--root": "/r",
        "--zookeeper": "z:1",
        "--pipeline": "p",
        "--listen": "127.0.0.1:0",
        "--workers": "3",
    }
    assert "--security" in ServiceTemplate("/r", "z:1", "p", security="/s").arguments()


def test_who_ended_is_told_once_with_code_and_last_words() -> None:
    made: list[Any] = []

    def start(birth: Any) -> Any:
        made.append(Process(len(made) + 1))
        return made[-1]

    services = Services(Path("/logs"), start)
    for name in ("master", "injector"):
        services.start(name, "millwheel.x", [])
    assert services.pids() == {"master": 1, "injector": 2}
    made[0].code = 1
    [ended] = services.ended()
    assert (ended.name, ended.code, ended.last_words) == ("master", 1, "no port")
    assert services.ended() == []
    services.stop_one("master", 0.0)
    services.stop(0.0)
    assert (made[1].code, services.pids()) == (-15, {})


def test_a_port_that_is_taken_is_a_sentence() -> None:
    with (
        page_listener("127.0.0.1", 0) as taken,
        pytest.raises(SetupError, match="choose another port"),
    ):
        check_page("127.0.0.1", taken.getsockname()[1])


def test_a_free_port_is_left_free() -> None:
    with socket.create_server(("127.0.0.1", 0)) as found:
        port = found.getsockname()[1]
    check_page("127.0.0.1", port)
    check_page("127.0.0.1", port)


# certificates.py: A security folder is made once, and its private files are the owner's alone.


def test_private_files_of_a_set_are_the_owners_alone(ours: Path) -> None:
    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in ours.iterdir()}
    private = {
        name for name in modes if name.endswith(".key") or name in ("token", "zookeeper.auth")
    }
    assert private == {"token", "zookeeper.auth", *(f"{role}.key" for role in ROLES)}
    assert {modes[name] for name in private} == {0o600}
    assert "ca.key" not in modes


def test_a_set_never_replaces_files(ours: Path) -> None:
    before = (ours / "token").read_bytes()
    with pytest.raises(SetupError, match="not empty"):
        make_set(str(ours))
    assert (ours / "token").read_bytes() == before
