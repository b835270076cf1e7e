"""The errors of librdkafka and of the brokers: what each means, by its name.

https://kafka.apache.org/protocol#protocol_error_codes; names that begin with an underscore are
librdkafka's own.
"""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from millwheel.connect.connectors.external.meanings import Meaning, of_python, told
from millwheel.connect.connectors.external.meanings import named as in_one_line
from millwheel.errors import MillwheelError

if TYPE_CHECKING:
    from confluent_kafka import KafkaError

FENCED = frozenset({"_FENCED", "PRODUCER_FENCED", "INVALID_PRODUCER_EPOCH"})
"""Another producer has the transactional id."""
REFUSED = frozenset(
    """MSG_SIZE_TOO_LARGE RECORD_LIST_TOO_LARGE INVALID_RECORD INVALID_TIMESTAMP INVALID_MSG_SIZE
    _UNKNOWN_PARTITION _BAD_MSG""".split()  # noqa: SIM905
)
"""Permanent errors about a row: too large for the topic, no key in a compacted topic, a timestamp
that the topic refuses, a partition that does not exist."""
# said of all messages of a request
TOGETHER = frozenset({"MSG_SIZE_TOO_LARGE", "RECORD_LIST_TOO_LARGE"})
BESIDE = frozenset({"_INVALID_DIFFERENT_RECORD", "_PURGE_QUEUE", "_PURGE_INFLIGHT", "_STATE"})
"""Errors about messages that only failed because another message of their transaction was
refused."""
# some were not delivered, and the report on each tells why
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
    """What an error of the library means. One that it may try again itself is an absence, whatever
    its name."""
    name = error.name()
    if name in FENCED or name in BESIDE or name == "_INCONSISTENT":
        return Meaning.ABSENT
    meaning = _MEANINGS.get(name)
    if meaning is None:
        return Meaning.ABSENT if error.retriable() else Meaning.UNKNOWN
    return meaning


def in_words(error: BaseException, where: str) -> MillwheelError:
    """The error of ours for one that a client raised; errors of ours stay as they are."""
    if isinstance(error, MillwheelError):
        return error
    if any(kind.__name__ == "KafkaException" for kind in type(error).__mro__):
        first: Any = error.args[0]
        return told(meaning_of(first), where, first.str())
    return told(of_python(error), where, in_one_line(error))
