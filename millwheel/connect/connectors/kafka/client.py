"""The common part of all Kafka clients of this project: addresses, settings, and the meanings of
the errors of librdkafka and of the brokers, by their names.

The library is confluent-kafka: librdkafka in one wheel, the only Python client with transactions
that Confluent keeps. The names of errors: https://kafka.apache.org/protocol#protocol_error_codes;
those that begin with an underscore are librdkafka's own.
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
from types import MappingProxyType
from typing import TYPE_CHECKING

from millwheel.connect.connectors.external.meanings import Meaning, error_for, of_python
from millwheel.connect.connectors.external.meanings import named as in_one_line
from millwheel.errors import MillwheelError

if TYPE_CHECKING:
    from confluent_kafka import KafkaError


log = logging.getLogger("millwheel.kafka")
_theirs = logging.getLogger("millwheel.kafka.librdkafka")
_theirs.addHandler(logging.NullHandler())
_theirs.propagate = False

ANSWER_S = 10.0
"""The timeout of a request to the brokers for which a caller waits (s)."""
_LOG_EVERY_S = 60.0  # between warnings about the same brokers
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
        raise ValueError(f"option 'config': {wrong[0]} is not a text, number or boolean")


class Complaints:
    """Logs the errors that librdkafka reports outside of calls: the first one, then at most one a
    minute. Without ``aloud`` nothing is logged, because another part reports that rows wait. Any
    thread may call it."""

    def __init__(self, brokers: str, aloud: bool = True) -> None:
        self._brokers = brokers
        self._aloud = aloud
        self._lock = threading.Lock()
        self._logged_at = -_LOG_EVERY_S
        self.last = ""
        self.hopeless = ""
        """The last complaint that waiting does not cure, if there is one; later ones are echoes."""

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
            if now_s < self._logged_at + _LOG_EVERY_S:
                return
            self._logged_at = now_s
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
        # ``error_cb`` gets the errors that matter; without a logger lines go to standard error
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
            f"Kafka at {brokers} refuses clients with these settings: {complaints.hopeless}. Check"
            " the option 'config'"
        )
    reason = complaints.because() or f": {error}"
    return (
        f"no Kafka broker at {brokers} answers{reason}. Check the option 'brokers', and its"
        " listeners and security"
    )


FENCED = frozenset({"_FENCED", "PRODUCER_FENCED", "INVALID_PRODUCER_EPOCH"})
"""Another producer has the transactional id."""
REFUSED = frozenset(
    """MSG_SIZE_TOO_LARGE RECORD_LIST_TOO_LARGE INVALID_RECORD INVALID_TIMESTAMP INVALID_MSG_SIZE
    _UNKNOWN_PARTITION _BAD_MSG""".split()  # noqa: SIM905
)
"""Permanent errors about a row: too large for the topic, no key in a compacted topic, a timestamp
that the topic refuses, a partition that does not exist."""
# reported about all messages of a request
TOGETHER = frozenset({"MSG_SIZE_TOO_LARGE", "RECORD_LIST_TOO_LARGE"})
BESIDE = frozenset({"_INVALID_DIFFERENT_RECORD", "_PURGE_QUEUE", "_PURGE_INFLIGHT", "_STATE"})
"""Errors about messages that only failed because another message of their transaction was
refused."""
# some were not delivered; the report on each gives the reason
PERHAPS = REFUSED | BESIDE | {"_INCONSISTENT"}
_BY_NAME = MappingProxyType(
    {
        Meaning.ABSENT: """
        _TRANSPORT _TIMED_OUT _MSG_TIMED_OUT _TIMED_OUT_QUEUE _RESOLVE _ALL_BROKERS_DOWN _QUEUE_FULL
        _DESTROY _INTR _WAIT_COORD _WAIT_CACHE _RETRY _IN_PROGRESS _PREV_IN_PROGRESS
        _GAPLESS_GUARANTEE _LEADER_CHANGE _ISR_INSUFF _NODE_UPDATE _NO_OFFSET _OUTDATED
        LEADER_NOT_AVAILABLE NOT_LEADER_FOR_PARTITION NOT_LEADER_OR_FOLLOWER REQUEST_TIMED_OUT
        BROKER_NOT_AVAILABLE REPLICA_NOT_AVAILABLE STALE_CTRL_EPOCH NETWORK_EXCEPTION
        COORDINATOR_LOAD_IN_PROGRESS COORDINATOR_NOT_AVAILABLE NOT_COORDINATOR
        GROUP_LOAD_IN_PROGRESS GROUP_COORDINATOR_NOT_AVAILABLE NOT_COORDINATOR_FOR_GROUP
        NOT_ENOUGH_REPLICAS NOT_ENOUGH_REPLICAS_AFTER_APPEND KAFKA_STORAGE_ERROR
        CONCURRENT_TRANSACTIONS TRANSACTION_COORDINATOR_FENCED OUT_OF_ORDER_SEQUENCE_NUMBER
        DUPLICATE_SEQUENCE_NUMBER UNKNOWN_PRODUCER_ID INVALID_PRODUCER_ID_MAPPING INVALID_TXN_STATE
        UNKNOWN_LEADER_EPOCH FENCED_LEADER_EPOCH LISTENER_NOT_FOUND OFFSET_NOT_AVAILABLE
        ELIGIBLE_LEADERS_NOT_AVAILABLE UNSTABLE_OFFSET_COMMIT THROTTLING_QUOTA_EXCEEDED
        REASSIGNMENT_IN_PROGRESS REBALANCE_IN_PROGRESS FETCH_SESSION_ID_NOT_FOUND
        INVALID_FETCH_SESSION_EPOCH INVALID_MSG CORRUPT_MESSAGE NOT_CONTROLLER UNKNOWN_TOPIC_ID
        INCONSISTENT_TOPIC_ID INVALID_UPDATE_VERSION
    """,
        Meaning.MEND: """
        _AUTHENTICATION _SSL _UNKNOWN_TOPIC _INVALID_ARG _NOT_CONFIGURED _UNSUPPORTED_FEATURE _FS
        TOPIC_AUTHORIZATION_FAILED GROUP_AUTHORIZATION_FAILED CLUSTER_AUTHORIZATION_FAILED
        TRANSACTIONAL_ID_AUTHORIZATION_FAILED SASL_AUTHENTICATION_FAILED UNSUPPORTED_SASL_MECHANISM
        ILLEGAL_SASL_STATE DELEGATION_TOKEN_AUTHORIZATION_FAILED DELEGATION_TOKEN_EXPIRED
        SECURITY_DISABLED UNSUPPORTED_VERSION UNSUPPORTED_FOR_MESSAGE_FORMAT
        UNSUPPORTED_COMPRESSION_TYPE TOPIC_EXCEPTION POLICY_VIOLATION INVALID_REQUIRED_ACKS
        INVALID_TRANSACTION_TIMEOUT INVALID_CONFIG INVALID_REQUEST
    """,
        Meaning.ROWS: " ".join(REFUSED),
    }
)
_MEANINGS = MappingProxyType(
    {name: meaning for meaning, names in _BY_NAME.items() for name in names.split()}
)


def meaning_of(error: KafkaError) -> Meaning:
    """The meaning of an error of the library. One that it may retry itself is an absence, under any
    name."""
    name = error.name()
    if name in FENCED or name in BESIDE or name == "_INCONSISTENT":
        return Meaning.ABSENT
    meaning = _MEANINGS.get(name)
    if meaning is None:
        return Meaning.ABSENT if error.retriable() else Meaning.UNKNOWN
    return meaning


def in_words(error: BaseException, where: str) -> MillwheelError:
    """Our error for an error that a client raised; errors of ours stay as they are."""
    if isinstance(error, MillwheelError):
        return error
    if any(kind.__name__ == "KafkaException" for kind in type(error).__mro__):
        first: Any = error.args[0]
        return error_for(meaning_of(first), where, first.str())
    return error_for(of_python(error), where, in_one_line(error))
