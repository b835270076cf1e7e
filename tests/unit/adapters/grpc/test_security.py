from __future__ import annotations

import threading
from dataclasses import replace
from pathlib import Path

import pytest

from millwheel.adapters.grpc.channels import new_channel, new_server
from millwheel.adapters.grpc.injection_client import InjectionClient
from millwheel.adapters.grpc.security import (
    Certificates,
    Security,
    TokenCheck,
    check_listen,
    is_loopback,
    load_security,
    make_token,
)
from millwheel.adapters.grpc.watermark_client import fetch_status
from millwheel.adapters.pb import injector_pb2
from millwheel.adapters.pb.injector_pb2_grpc import InjectorStub
from millwheel.control.injector.server import InjectorServer
from millwheel.engine.workers import events as ev
from millwheel.errors import SetupError, UnavailableError
from millwheel.launch.certificates import make_set

WAIT_S = 5.0


def loaded(folder: Path, role: str = "client") -> Security:
    security = load_security(str(folder), role)
    assert security is not None
    return security


def certificates(folder: Path) -> Certificates:
    tls = loaded(folder).tls
    assert tls is not None
    return tls


def with_token_of(known: Security, token: Security) -> Security:
    return replace(known, token=token.token)


def test_a_client_believes_no_server_of_another_ca(
    worker: tuple[str, list[ev.Event]], ours: Path, theirs: Path
) -> None:
    mixed = replace(certificates(ours), ca=certificates(theirs).ca)
    client = InjectionClient(Security(loaded(ours).token, mixed))
    with pytest.raises(UnavailableError):
        client.inject(worker[0], "s", "s-0", [])
    client.close()
    assert not worker[1]


def test_nothing_of_a_refused_call_reaches_the_worker(
    worker: tuple[str, list[ev.Event]], ours: Path, theirs: Path
) -> None:
    client = InjectionClient(with_token_of(loaded(ours), loaded(theirs)))
    with pytest.raises(UnavailableError, match="a wrong token"):
        client.inject(worker[0], "s", "s-0", [])
    client.close()
    assert not worker[1]


def test_status_is_answered_with_and_refused_without_the_token(
    injector: str, ours: Path, theirs: Path
) -> None:
    assert not fetch_status(injector, security=loaded(ours)).nodes
    with pytest.raises(UnavailableError, match="wrong token"):
        fetch_status(injector, security=with_token_of(loaded(ours), loaded(theirs)))


def test_refusals_are_counted_also_when_they_come_at_once(ours: Path, theirs: Path) -> None:
    check = TokenCheck(loaded(ours))
    details = type(
        "Details", (), {"method": "/x", "invocation_metadata": (("authorization", "Bearer no"),)}
    )()

    def hammer() -> None:
        for _ in range(200):
            check.intercept_service(lambda _: None, details)

    threads = [threading.Thread(target=hammer) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert check.refused == 800


@pytest.mark.parametrize("host", ["0.0.0.0", "10.1.2.3", "[::]", "myhost", "", "auto"])
def test_nothing_listens_off_loopback_without_security(host: str) -> None:
    with pytest.raises(SetupError, match="millwheel certs FOLDER"):
        new_server(1, f"{host}:0")


@pytest.mark.parametrize("host", ["127.0.0.1", "127.8.8.8", "[::1]", "localhost"])
def test_the_loopback_needs_no_security(host: str) -> None:
    assert is_loopback(host)
    check_listen(f"{host}:0", None)


def test_with_security_every_address_may_be_listened_on(ours: Path) -> None:
    server, _ = new_server(1, "0.0.0.0:0", loaded(ours))
    server.stop(None)


@pytest.mark.parametrize("name", ["ca.pem", "worker.key", "token"])
def test_what_a_security_folder_lacks_is_named(tmp_path: Path, name: str) -> None:
    folder = make_set(str(tmp_path / "set"))
    (folder / name).unlink()
    with pytest.raises(SetupError, match=name):
        load_security(str(folder), "worker")


@pytest.mark.parametrize("name", ["worker.key", "token"])
def test_private_files_that_others_can_read_are_refused(tmp_path: Path, name: str) -> None:
    folder = make_set(str(tmp_path / "set"))
    (folder / name).chmod(0o644)
    with pytest.raises(SetupError, match="chmod 600"):
        load_security(str(folder), "worker")


@pytest.mark.parametrize("name", ["", "ca.pem", "worker.pem", "worker.key", "token"])
def test_what_others_may_write_is_refused(tmp_path: Path, name: str) -> None:
    folder = make_set(str(tmp_path / "set"))
    (folder / name).chmod(0o722)
    with pytest.raises(SetupError, match="chmod"):
        load_security(str(folder), "worker")


def test_short_tokens_and_files_that_are_no_pem_are_refused(tmp_path: Path) -> None:
    folder = make_set(str(tmp_path / "set"))
    (folder / "worker.pem").write_text("no certificate")
    with pytest.raises(SetupError, match="PEM"):
        load_security(str(folder), "worker")
    (folder / "token").write_text("short")
    with pytest.raises(SetupError, match="at least 16"):
        load_security(str(folder), "worker")


def test_secrets_do_not_show(ours: Path) -> None:
    assert loaded(ours).token not in repr(loaded(ours))
    assert "PRIVATE" not in repr(loaded(ours))


class TestATokenWithoutCertificates:
    """What a run has that nobody gave a security folder."""

    @pytest.fixture
    def token(self, tmp_path: Path) -> Security:
        make_token(tmp_path / "access")
        found = load_security(str(tmp_path / "access"))
        assert found is not None
        return found

    def test_is_made_once_for_its_user_alone(self, tmp_path: Path, token: Security) -> None:
        make_token(tmp_path / "access")
        assert load_security(str(tmp_path / "access")) == token
        assert (token.tls, len(token.token)) == (None, 43)
        modes = {path.name: path.stat().st_mode & 0o777 for path in (tmp_path / "access").iterdir()}
        assert modes == {"token": 0o600, "zookeeper.auth": 0o600}

    def test_may_be_read_by_the_group_that_a_root_is_shared_with(self, tmp_path: Path) -> None:
        tmp_path.chmod(0o2750)
        make_token(tmp_path / "access")
        assert (tmp_path / "access" / "token").stat().st_mode & 0o777 == 0o640
        assert load_security(str(tmp_path / "access")) is not None
        (tmp_path / "access" / "token").chmod(0o644)
        with pytest.raises(SetupError, match="chmod"):
            load_security(str(tmp_path / "access"))

    def test_serves_the_loopback_only(self, token: Security) -> None:
        check_listen("127.0.0.1:0", token)
        with pytest.raises(SetupError, match="--security"):
            check_listen("0.0.0.0:0", token)

    def test_is_not_shown_itself_but_a_proof_that_is_of_no_use_at_another_port(
        self, token: Security
    ) -> None:
        shown = token.shown_at("127.0.0.1:7000")
        assert token.token not in shown
        assert token.admits(shown.encode(), "127.0.0.1:7000")
        assert not token.admits(shown.encode(), "127.0.0.1:7001")
        assert token.admits(token.token.encode(), "127.0.0.1:7001"), (
            "people and their programs show the token"
        )

    def test_is_wanted_by_services_on_the_loopback(self, token: Security, tmp_path: Path) -> None:
        make_token(tmp_path / "other")
        other = load_security(str(tmp_path / "other"))
        server = InjectorServer("127.0.0.1:0", token)
        server.start()
        server.lead([])
        try:
            assert not fetch_status(server.address, security=token).nodes
            for stranger, why in ((None, "no token"), (other, "a wrong token")):
                with pytest.raises(UnavailableError, match=why):
                    fetch_status(server.address, security=stranger)
        finally:
            server.stop()


def test_to_show_the_token_no_thread_is_started(
    injector: str, ours: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever has gRPC call Python back for the token can stop the process while a channel is
    closed."""
    started: list[str] = []
    start = threading.Thread.start

    def record(thread: threading.Thread) -> None:
        # the threads of the server, which is in this process
        if not thread.name.startswith("grpc_"):
            started.append(thread.name)
        start(thread)

    with new_channel(injector, loaded(ours)) as channel:
        stub = InjectorStub(channel)
        stub.Status(injector_pb2.StatusRequest(), timeout=WAIT_S)
        monkeypatch.setattr(threading.Thread, "start", record)
        for _ in range(3):
            stub.Status(injector_pb2.StatusRequest(), timeout=WAIT_S)
    assert started == []
