"""Certificates: their end is told, and new ones are taken without a stop."""

from __future__ import annotations

import socket
import ssl
import threading
from collections.abc import Iterator
from datetime import datetime, timedelta, timezone
from pathlib import Path

import pytest

from millwheel.adapters.exchange.handshake import Handshakes, dial
from millwheel.adapters.grpc.certificates import (
    Certificates,
    RenewedContext,
    keep_renewed,
    server_context,
    warning_of,
)
from millwheel.adapters.grpc.security import Security, load_security
from millwheel.adapters.grpc.watermark_client import StatusLine, fetch_status
from millwheel.control.injector.server import InjectorServer
from millwheel.errors import SetupError, UnavailableError
from millwheel.launch.certificates import make_set, renew_set

NOW = datetime(2026, 1, 1, tzinfo=timezone.utc)


def loaded(folder: Path, role: str = "client") -> Security:
    found = load_security(str(folder), role)
    assert found is not None
    return found


def tls_of(folder: Path, role: str = "client") -> Certificates:
    tls = loaded(folder, role).tls
    assert tls is not None
    return tls


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return make_set(str(tmp_path / "set"))


def test_an_end_within_a_month_is_told_with_the_remedy() -> None:
    assert warning_of(NOW + timedelta(days=31), NOW) == ""
    assert "end in 29 days, on 2026-01-30 00:00 UTC" in warning_of(NOW + timedelta(days=29), NOW)
    assert "end in 5 hours" in warning_of(NOW + timedelta(hours=5), NOW)
    assert "millwheel certs FOLDER --renew" in warning_of(NOW + timedelta(days=1), NOW)


def test_certificates_that_are_over_are_a_sentence(tmp_path: Path) -> None:
    over = make_set(str(tmp_path / "over"), datetime.now(timezone.utc) - timedelta(days=366))
    with pytest.raises(SetupError, match="have ended on"):
        load_security(str(over))
    renew_set(str(over))
    assert loaded(over).tls is not None


def test_a_set_is_renewed_with_its_token_and_both_cas_are_believed(folder: Path) -> None:
    before, first = loaded(folder), (folder / "ca.pem").read_bytes()
    renew_set(str(folder), datetime.now(timezone.utc) + timedelta(days=10))
    after = loaded(folder)
    assert after.token == before.token
    assert after.tls is not None
    assert after.tls.ca.endswith(first)
    assert after.tls.ends() > datetime.now(timezone.utc) + timedelta(days=370), (
        "the first CA does not shorten it"
    )
    assert (folder / "worker.key").stat().st_mode & 0o777 == 0o600


def test_a_set_of_somebody_elses_ca_is_not_renewed(folder: Path, tmp_path: Path) -> None:
    with pytest.raises(SetupError, match="no set of certificates"):
        renew_set(str(tmp_path / "none"))
    (folder / "ca.pem").write_text("nothing")
    with pytest.raises(SetupError, match="no set of certificates"):
        renew_set(str(folder))


def test_half_of_a_new_set_is_not_taken(folder: Path, tmp_path: Path) -> None:
    tls = tls_of(folder, "worker")
    other = make_set(str(tmp_path / "other"))
    (folder / "worker.pem").write_bytes((other / "worker.pem").read_bytes())
    assert tls.current() is tls, "the key is not there yet"
    (folder / "worker.key").write_bytes((other / "worker.key").read_bytes())
    assert tls.current().certificate == (other / "worker.pem").read_bytes()


@pytest.fixture
def injector(folder: Path) -> Iterator[str]:
    server = InjectorServer("127.0.0.1:0", loaded(folder, "injector"))
    server.start()
    server.lead([])
    yield server.address
    server.stop()


def test_services_that_run_take_new_certificates(folder: Path, injector: str) -> None:
    old, line = loaded(folder), StatusLine(injector, loaded(folder))
    assert not line.ask().nodes
    renew_set(str(folder))
    assert not line.ask().nodes, "what is connected stays connected"
    assert not fetch_status(injector, security=old).nodes, (
        "a client that was there before shows the new ones"
    )
    assert not fetch_status(injector, security=loaded(folder)).nodes
    shown = ssl.get_server_certificate(("127.0.0.1", int(injector.rpartition(":")[2])))
    assert shown.strip() == (folder / "injector.pem").read_text().strip()
    line.close()


def test_workers_that_run_take_new_certificates(folder: Path) -> None:
    opened: list[socket.socket] = []
    ours, came = loaded(folder, "worker"), threading.Event()

    def take(connected: socket.socket, _: str) -> None:
        opened.append(connected)
        came.set()

    listening = Handshakes("127.0.0.1:0", take, ours)
    renew_set(str(folder))
    for each in (ours, loaded(folder, "worker")):
        came.clear()
        dial(listening.address, each).close()
        assert came.wait(5)
    for connected in opened:
        connected.close()
    listening.close()


def test_a_context_is_made_anew_and_one_that_a_library_keeps_is_filled(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("millwheel.adapters.grpc.certificates._LOOK_S", 0.01)
    tls, filled, load = tls_of(folder, "worker"), threading.Event(), Certificates.load_into
    renewed, kept = RenewedContext(tls, server_context), server_context(tls)
    first = renewed.now()
    assert renewed.now() is first

    def loads(certificates: Certificates, context: ssl.SSLContext) -> None:
        load(certificates, context)
        if context is kept:
            filled.set()

    monkeypatch.setattr(Certificates, "load_into", loads)
    keep_renewed(kept, tls)
    renew_set(str(folder))
    assert filled.wait(5)
    assert renewed.now() is not first


def test_who_has_another_set_is_refused_also_after_a_renewal(
    folder: Path, injector: str, tmp_path: Path
) -> None:
    other = loaded(make_set(str(tmp_path / "other")))
    renew_set(str(folder))
    with pytest.raises(UnavailableError):
        fetch_status(injector, 5.0, Security(loaded(folder).token, other.tls))
