from __future__ import annotations

import http.client
import socket
import ssl
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from millwheel.adapters.grpc.security import Security, load_security
from millwheel.adapters.metrics.client import fetched
from millwheel.adapters.metrics.endpoint import Endpoint, read_head
from millwheel.errors import SetupError
from millwheel.launch.certificates import make_set


@pytest.fixture
def endpoint() -> Iterator[Endpoint]:
    def broken() -> bytes:
        raise ValueError("broken")

    made = Endpoint("127.0.0.1:0", None, {"/metrics": lambda: b"up 1\n", "/broken": broken})
    made.start()
    yield made
    made.close()


def asked(address: str, path: str, method: str = "GET") -> tuple[int, str]:
    connection = http.client.HTTPConnection(address, timeout=5)
    connection.request(method, path)
    reply = connection.getresponse()
    found = reply.status, reply.read().decode()
    connection.close()
    return found


def test_a_page_is_served_by_its_path_and_others_are_named(endpoint: Endpoint) -> None:
    assert asked(endpoint.address, "/metrics?x=1") == (200, "up 1\n")
    status, text = asked(endpoint.address, "/other")
    assert status == 404
    assert "/metrics" in text
    assert asked(endpoint.address, "/metrics", "POST")[0] == 501


def test_probes_answer_with_the_reason_when_something_is_not_well(endpoint: Endpoint) -> None:
    assert asked(endpoint.address, "/healthz") == (200, "ok\n")
    assert asked(endpoint.address, "/readyz") == (200, "ok\n")
    ill = Endpoint("127.0.0.1:0", None, {}, ready=lambda: "not there: worker-1")
    ill.start()
    assert asked(ill.address, "/healthz")[0] == 200
    assert asked(ill.address, "/readyz?verbose") == (503, "not there: worker-1\n")
    ill.close()


def test_neither_a_page_that_fails_nor_a_client_that_hangs_up_ends_it(
    endpoint: Endpoint, caplog: pytest.LogCaptureFixture
) -> None:
    with pytest.raises(http.client.HTTPException):
        asked(endpoint.address, "/broken")
    host, _, port = endpoint.address.rpartition(":")
    socket.create_connection((host, int(port))).close()
    assert asked(endpoint.address, "/metrics")[0] == 200
    assert "broken" in caplog.text


def test_a_port_that_is_taken_and_an_open_one_off_the_loopback_are_refused(
    endpoint: Endpoint,
) -> None:
    with pytest.raises(SetupError, match="cannot be served"):
        Endpoint(endpoint.address, None, {})
    with pytest.raises(SetupError, match="without authentication"):
        Endpoint("0.0.0.0:0", None, {})


def test_off_the_loopback_it_speaks_tls_and_wants_the_token(tmp_path: Path) -> None:
    security, other = (load_security(str(make_set(str(tmp_path / name)))) for name in "ab")
    assert security is not None
    assert other is not None
    made = Endpoint("0.0.0.0:0", security, {"/metrics": lambda: b"up 1\n"})
    made.start()
    address = f"0.0.0.0:{made.address.rpartition(':')[2]}"
    assert fetched({"w": address}, "/metrics", security) == {"w": "up 1\n"}
    assert fetched({"w": address}, "/metrics", other) == {}
    stranger = replace(security, token="another-token-of-theirs")
    assert fetched({"w": address}, "/metrics", stranger) == {}
    context = ssl.create_default_context()
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE  # as a kubelet, which has no token either
    for path, status in (("/healthz", 200), ("/readyz", 200), ("/metrics", 401)):
        connection = http.client.HTTPSConnection(address, timeout=5, context=context)
        connection.request("GET", path)
        assert connection.getresponse().status == status
        connection.close()
    made.close()


@pytest.mark.parametrize(
    ("secured", "statuses"),
    [(False, {"/metrics": 200, "/rows": 401}), (True, {"/metrics": 401, "/rows": 401})],
)
def test_on_the_loopback_only_metrics_are_open_and_with_certificates_not_even_these(
    tmp_path: Path, secured: bool, statuses: dict[str, int]
) -> None:
    known = load_security(str(make_set(str(tmp_path / "set"))))
    assert known is not None
    security = known if secured else Security(known.token)
    made = Endpoint(
        "127.0.0.1:0", security, {"/metrics": lambda: b"up 1\n", "/rows": lambda: b"[]"}
    )
    made.start()
    for path, status in {**statuses, "/healthz": 200, "/readyz": 200}.items():
        connection = http.client.HTTPConnection(made.address, timeout=5)
        connection.request("GET", path)
        assert connection.getresponse().status == status
        connection.close()
    assert fetched({"w": made.address}, "/rows", security) == {"w": "[]"}
    made.close()


def test_clients_that_say_nothing_do_not_keep_a_probe_waiting(endpoint: Endpoint) -> None:
    host, port = endpoint.address.split(":")
    silent = [socket.create_connection((host, int(port))) for _ in range(3)]
    # each of them may be silent for 5 s
    connection = http.client.HTTPConnection(endpoint.address, timeout=3)
    connection.request("GET", "/healthz")
    assert connection.getresponse().status == 200
    connection.close()
    for each in silent:
        each.close()


def test_pages_are_not_served_by_the_name_of_another_site_but_probes_are(
    endpoint: Endpoint,
) -> None:
    def status(path: str, host: str) -> int:
        connection = http.client.HTTPConnection(endpoint.address, timeout=5)
        connection.request("GET", path, headers={"Host": host})
        found = connection.getresponse().status
        connection.close()
        return found

    assert status("/metrics", "evil.example") == 421
    assert status("/healthz", "10.1.2.3") == 200
    assert status("/metrics", "localhost:1") == 200


def test_a_head_is_read_whatever_its_pieces_are() -> None:
    left, right = socket.socketpair()
    with left, right:
        left.sendall(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n")
        assert read_head(right, 100) == b"GET / HTTP/1.1\r\nHost: a\r\n\r\n"


@pytest.mark.parametrize("sent", [b"GET / HTTP/1.1\r\nHo", b"", b"x" * 200])
def test_half_a_head_and_one_without_an_end_are_refused(sent: bytes) -> None:
    left, right = socket.socketpair()
    with right:
        with left:
            left.sendall(sent)
        with pytest.raises(ConnectionError):
            read_head(right, 100)
