"""Who may call a service, and where it may listen."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import grpc
import pytest

from millwheel.adapters.grpc.channels import new_channel
from millwheel.adapters.grpc.security import Security, TokenShown
from millwheel.adapters.pb import injector_pb2, master_pb2, worker_pb2
from millwheel.adapters.pb.injector_pb2_grpc import InjectorStub
from millwheel.adapters.pb.master_pb2_grpc import MasterStub
from millwheel.adapters.pb.worker_pb2_grpc import WorkerStub
from tests.unit.adapters.grpc.test_security import WAIT_S, certificates, loaded, with_token_of

Call = Callable[[grpc.Channel], object]


CALLS: dict[str, tuple[str, Call]] = {
    "worker Attach": ("worker",
    lambda c: next(iter(WorkerStub(c).Attach(worker_pb2.AttachRequest(), timeout=WAIT_S)))),
    "worker Inject": ("worker", lambda c: WorkerStub(c).Inject(worker_pb2.InjectRequest(),
    timeout=WAIT_S)),
    "injector Connect": ("injector", lambda c: next(iter(InjectorStub(c).Connect(iter(()),
    timeout=WAIT_S)), None)),
    "injector Status": (
        "injector", lambda c: InjectorStub(c).Status(injector_pb2.StatusRequest(), timeout=WAIT_S)
    ),
    "master Describe": ("master", lambda c: MasterStub(c).Describe(master_pb2.DescribeRequest(),
    timeout=WAIT_S)),
    "master Move": ("master", lambda c: MasterStub(c).Move(master_pb2.MoveRequest(),
    timeout=WAIT_S)),
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
    def test_is_closed_to_who_speaks_no_tls(
        self, request: pytest.FixtureRequest, name: str
    ) -> None:
        service, call = CALLS[name]
        assert (
            code_of(new_channel(address_of(request, service)), call) is grpc.StatusCode.UNAVAILABLE
        )

    def test_is_closed_to_who_has_no_certificate(
        self, request: pytest.FixtureRequest, name: str, ours: Path
    ) -> None:
        service, call = CALLS[name]
        options = (("grpc.ssl_target_name_override", "millwheel"),)
        nameless = grpc.ssl_channel_credentials(certificates(ours).ca)
        channel = grpc.secure_channel(address_of(request, service), nameless, options=options)
        channel = grpc.intercept_channel(channel, TokenShown(loaded(ours).token))
        assert code_of(channel, call) is grpc.StatusCode.UNAVAILABLE

    def test_is_closed_to_certificates_of_another_ca(
        self, request: pytest.FixtureRequest, name: str, ours: Path, theirs: Path
    ) -> None:
        service, call = CALLS[name]
        mixed = Security(
            loaded(ours).token, replace(certificates(theirs), ca=certificates(ours).ca)
        )
        assert (
            code_of(new_channel(address_of(request, service), mixed), call)
            is grpc.StatusCode.UNAVAILABLE
        )

    def test_refuses_a_wrong_token(
        self,
        request: pytest.FixtureRequest,
        name: str,
        ours: Path,
        theirs: Path,
        caplog: pytest.LogCaptureFixture,
    ) -> None:
        service, call = CALLS[name]
        wrong = with_token_of(loaded(ours), loaded(theirs))
        with caplog.at_level(logging.WARNING, "millwheel.security"):
            assert (
                code_of(new_channel(address_of(request, service), wrong), call)
                is grpc.StatusCode.UNAUTHENTICATED
            )
        lines = [record.getMessage() for record in caplog.records]
        assert len(lines) == 1
        assert "a wrong token" in lines[0]
        assert wrong.token not in lines[0]

    def test_answers_who_has_certificate_and_token(
        self, request: pytest.FixtureRequest, name: str, ours: Path
    ) -> None:
        service, call = CALLS[name]
        code = code_of(new_channel(address_of(request, service), loaded(ours)), call)
        # the service's own word: this master does not lead
        standby = grpc.StatusCode.FAILED_PRECONDITION
        assert code is (standby if service == "master" else None)
