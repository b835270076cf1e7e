from __future__ import annotations

import logging
import stat
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import grpc
import pytest

from millwheel.adapters.grpc.common import new_channel, new_server
from millwheel.adapters.grpc.injection_client import InjectionClient
from millwheel.adapters.grpc.security import Security, TokenCheck, TokenShown, check_listen, is_loopback, load_security
from millwheel.adapters.grpc.watermark_client import fetch_status
from millwheel.core.model.range_table import RangeTable
from millwheel.errors import SetupError, UnavailableError
from millwheel.injector.server import InjectorServer
from millwheel.launch.certificates import ROLES, make_set
from millwheel.master.server import MasterService
from millwheel.pb import injector_pb2, master_pb2, worker_pb2
from millwheel.pb.injector_pb2_grpc import InjectorStub
from millwheel.pb.master_pb2_grpc import MasterStub, add_MasterServicer_to_server
from millwheel.pb.worker_pb2_grpc import WorkerStub
from millwheel.workers import events as ev
from millwheel.workers.server import WorkerService, serve

WAIT_S = 5.0


def loaded(folder: Path, role: str = "client") -> Security:
    security = load_security(str(folder), role)
    assert security is not None
    return security


def with_token_of(certificates: Security, token: Security) -> Security:
    return Security(certificates.ca, certificates.certificate, certificates.key, token.token)


@pytest.fixture
def worker(ours: Path) -> Iterator[tuple[str, list[ev.Event]]]:
    posted: list[ev.Event] = []

    def post(event: ev.Event) -> None:
        posted.append(event)
        if isinstance(event, ev.Injected):
            event.answer(False, len(event.values), 0, 0)

    server, address = serve(WorkerService(post), "127.0.0.1:0", loaded(ours, "worker"))
    yield address, posted
    server.stop(None).wait()


@pytest.fixture
def injector(ours: Path) -> Iterator[str]:
    server = InjectorServer(security=loaded(ours, "injector"))
    server.start()
    tables: list[RangeTable] = []
    server.lead(tables)
    yield server.address
    server.stop()


@pytest.fixture
def master(ours: Path) -> Iterator[str]:
    server, address = new_server(4, "127.0.0.1:0", loaded(ours, "master"))
    add_MasterServicer_to_server(MasterService(lambda _: None), server)
    server.start()
    yield address
    server.stop(None).wait()


Call = Callable[[grpc.Channel], object]
CALLS: dict[str, tuple[str, Call]] = {
    "worker Attach": ("worker", lambda c: next(iter(WorkerStub(c).Attach(worker_pb2.AttachRequest(), timeout=WAIT_S)))),
    "worker Inject": ("worker", lambda c: WorkerStub(c).Inject(worker_pb2.InjectRequest(), timeout=WAIT_S)),
    "injector Connect": ("injector", lambda c: next(iter(InjectorStub(c).Connect(iter(()), timeout=WAIT_S)), None)),
    "injector Status": (
        "injector", lambda c: InjectorStub(c).Status(injector_pb2.StatusRequest(), timeout=WAIT_S)
    ),
    "master Describe": ("master", lambda c: MasterStub(c).Describe(master_pb2.DescribeRequest(), timeout=WAIT_S)),
    "master Move": ("master", lambda c: MasterStub(c).Move(master_pb2.MoveRequest(), timeout=WAIT_S)),
}  # fmt: skip


def address_of(request: pytest.FixtureRequest, service: str) -> str:
    made = request.getfixturevalue(service)
    return made if isinstance(made, str) else made[0]


def code_of(channel: grpc.Channel, call: Call) -> grpc.StatusCode | None:
    """How a call ended; None when it was answered."""
    with channel:
        try:
            call(channel)
        except grpc.RpcError as error:
            return error.code() if isinstance(error, grpc.Call) else grpc.StatusCode.UNKNOWN
    return None


@pytest.mark.parametrize("name", CALLS)
class TestEveryService:
    def test_is_closed_to_who_speaks_no_tls(self, request: pytest.FixtureRequest, name: str) -> None:
        service, call = CALLS[name]
        assert code_of(new_channel(address_of(request, service)), call) is grpc.StatusCode.UNAVAILABLE

    def test_is_closed_to_who_has_no_certificate(self, request: pytest.FixtureRequest, name: str, ours: Path) -> None:
        service, call = CALLS[name]
        options = (("grpc.ssl_target_name_override", "millwheel"),)
        nameless = grpc.ssl_channel_credentials(loaded(ours).ca)
        channel = grpc.secure_channel(address_of(request, service), nameless, options=options)
        channel = grpc.intercept_channel(channel, TokenShown(loaded(ours).token))
        assert code_of(channel, call) is grpc.StatusCode.UNAVAILABLE

    def test_is_closed_to_certificates_of_another_ca(
        self, request: pytest.FixtureRequest, name: str, ours: Path, theirs: Path
    ) -> None:
        service, call = CALLS[name]
        mixed = Security(loaded(ours).ca, loaded(theirs).certificate, loaded(theirs).key, loaded(ours).token)
        assert code_of(new_channel(address_of(request, service), mixed), call) is grpc.StatusCode.UNAVAILABLE

    def test_refuses_a_wrong_token(
        self, request: pytest.FixtureRequest, name: str, ours: Path, theirs: Path, caplog: pytest.LogCaptureFixture
    ) -> None:
        service, call = CALLS[name]
        wrong = with_token_of(loaded(ours), loaded(theirs))
        with caplog.at_level(logging.WARNING, "millwheel.security"):
            assert code_of(new_channel(address_of(request, service), wrong), call) is grpc.StatusCode.UNAUTHENTICATED
        lines = [record.getMessage() for record in caplog.records]
        assert len(lines) == 1
        assert "a wrong token" in lines[0]
        assert wrong.token not in lines[0]

    def test_answers_who_has_certificate_and_token(self, request: pytest.FixtureRequest, name: str, ours: Path) -> None:
        service, call = CALLS[name]
        code = code_of(new_channel(address_of(request, service), loaded(ours)), call)
        standby = grpc.StatusCode.FAILED_PRECONDITION  # the service's own word: this master does not lead
        assert code is (standby if service == "master" else None)


def test_a_client_believes_no_server_of_another_ca(
    worker: tuple[str, list[ev.Event]], ours: Path, theirs: Path
) -> None:
    client = InjectionClient(
        Security(loaded(theirs).ca, loaded(ours).certificate, loaded(ours).key, loaded(ours).token)
    )
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


def test_status_is_answered_with_and_refused_without_the_token(injector: str, ours: Path, theirs: Path) -> None:
    assert not fetch_status(injector, security=loaded(ours)).nodes
    with pytest.raises(UnavailableError, match="wrong token"):
        fetch_status(injector, security=with_token_of(loaded(ours), loaded(theirs)))


def test_refusals_are_counted_also_when_they_come_at_once(ours: Path, theirs: Path) -> None:
    check = TokenCheck(loaded(ours).token)
    details = type("Details", (), {"method": "/x", "invocation_metadata": (("authorization", "Bearer no"),)})()

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


def test_private_files_of_a_set_are_the_owners_alone(ours: Path) -> None:
    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in ours.iterdir()}
    private = {name for name in modes if name.endswith(".key") or name in ("token", "zookeeper.auth")}
    assert private == {"token", "zookeeper.auth", *(f"{role}.key" for role in ROLES)}
    assert {modes[name] for name in private} == {0o600}
    assert "ca.key" not in modes


def test_a_set_never_replaces_files(ours: Path) -> None:
    before = (ours / "token").read_bytes()
    with pytest.raises(SetupError, match="not empty"):
        make_set(str(ours))
    assert (ours / "token").read_bytes() == before


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


def test_to_show_the_token_no_thread_is_started(injector: str, ours: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever has gRPC call Python back for the token can stop the process while a channel is closed."""
    started: list[str] = []
    start = threading.Thread.start

    def record(thread: threading.Thread) -> None:
        if not thread.name.startswith("grpc_"):  # the threads of the server, which is in this process
            started.append(thread.name)
        start(thread)

    with new_channel(injector, loaded(ours)) as channel:
        stub = InjectorStub(channel)
        stub.Status(injector_pb2.StatusRequest(), timeout=WAIT_S)
        monkeypatch.setattr(threading.Thread, "start", record)
        for _ in range(3):
            stub.Status(injector_pb2.StatusRequest(), timeout=WAIT_S)
    assert started == []
