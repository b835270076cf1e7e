"""The common part of all Kafka clients of this project: addresses, settings, and errors in words.

The library is confluent-kafka: librdkafka in one wheel, the only Python client with transactions
that Confluent keeps.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from millwheel.errors import SetupError

if TYPE_CHECKING:
    from confluent_kafka import KafkaError

log = logging.getLogger("millwheel.kafka")
_theirs = logging.getLogger("millwheel.kafka.librdkafka")
_theirs.addHandler(logging.NullHandler())
_theirs.propagate = False

ANSWER_S = 10.0
"""The timeout of a request to the brokers for which a caller waits (s)."""
_SAY_EVERY_S = 60.0  # between warnings about the same brokers
_OWN = frozenset(
    """bootstrap.servers enable.auto.commit enable.partition.eof auto.offset.reset transactional.id
    enable.idempotence isolation.level""".split()  # noqa: SIM905
)
_HOPELESS = frozenset({"_AUTHENTICATION", "_SSL"})
"""Permanent errors: a request fails at once instead of waiting for its timeout."""
_QUIET = frozenset({"_TRANSPORT", "_RESOLVE"})
"""Errors of single connections, which librdkafka handles; we only report that no broker is left."""


def library() -> Any:
    """The ``confluent_kafka`` module. Raises SetupError if it is not installed."""
    try:
        import confluent_kafka
    except ImportError as ex:
        raise SetupError(
            "Kafka needs the package confluent-kafka; install it with: pip install"
            " 'millwheel-spark[kafka]'"
        ) from ex
    return confluent_kafka


def check_config(config: Mapping[str, Any]) -> None:
    """Raises ValueError for settings of librdkafka that our own options decide."""
    if clash := sorted(_OWN & config.keys()):
        raise ValueError(
            f"option 'config' sets {clash[0]}, which the connector decides by itself; remove it"
        )
    if wrong := [
        name for name, value in config.items() if not isinstance(value, (str, int, float, bool))
    ]:
        raise ValueError(f"option 'config': {wrong[0]} is no text, number or boolean")


class Complaints:
    """Logs the errors that librdkafka reports outside of calls: the first one, then at most one a
    minute. Without ``aloud`` nothing is logged, because another part reports that rows wait. Any
    thread may call it."""

    def __init__(self, brokers: str, aloud: bool = True) -> None:
        self._brokers = brokers
        self._aloud = aloud
        self._lock = threading.Lock()
        self._said_at = -_SAY_EVERY_S
        self.last = ""
        self.hopeless = ""
        """The complaint that waiting does not cure, if there is one; later ones are its echoes."""

    def __call__(self, error: KafkaError) -> None:
        if error.name() in _QUIET:
            self.last = self.last or error.str()
            return
        self.last = error.str()
        if error.name() in _HOPELESS:
            self.hopeless = error.str()
        if not self._aloud:
            return
        now_s = time.monotonic()
        with self._lock:
            if now_s < self._said_at + _SAY_EVERY_S:
                return
            self._said_at = now_s
        log.warning(
            "Kafka at %s: %s. It is tried again; nothing is lost meanwhile.",
            self._brokers,
            error.str(),
        )

    def because(self) -> str:
        """The last complaint as the end of a sentence."""
        return f": {self.last}" if self.last else ""


def settings(
    brokers: str, config: Mapping[str, Any], complaints: Callable[[KafkaError], None]
) -> dict[str, Any]:
    """The configuration of a client."""
    return {
        "bootstrap.servers": brokers,
        "client.id": "millwheel",
        "error_cb": complaints,
        # what matters reaches ``error_cb``; without one its lines go to standard error
        "logger": _theirs,
        "socket.keepalive.enable": True,
        "reconnect.backoff.max.ms": 1_000,
        **config,
    }


def existing_topics(client: Any, brokers: str, complaints: Complaints) -> Mapping[str, Any]:
    """Topic name to its metadata. Raises SetupError when no broker answers in time."""
    kafka = library()
    until = time.monotonic() + ANSWER_S
    while True:
        try:
            topics: Mapping[str, Any] = client.list_topics(timeout=min(1.0, ANSWER_S)).topics
        except kafka.KafkaException as ex:
            client.poll(0)  # errors of connections are reported only here
            if time.monotonic() < until and not complaints.hopeless:
                continue
            raise SetupError(_unreachable(brokers, complaints, ex.args[0].str())) from ex
        return topics


def _unreachable(brokers: str, complaints: Complaints, error: str) -> str:
    if complaints.hopeless:
        return (
            f"Kafka at {brokers} lets nobody in under these settings: {complaints.hopeless}. Check"
            " the option 'config'"
        )
    reason = complaints.because() or f": {error}"
    return (
        f"no Kafka broker at {brokers} answers{reason}. Check the option 'brokers', and its"
        " listeners and security"
    )
