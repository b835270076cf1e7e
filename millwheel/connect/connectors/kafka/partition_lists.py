"""Lists partitions on a thread, because the brokers may answer slowly."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from millwheel.connect.connectors.kafka.client import (
    ANSWER_S,
    Complaints,
    existing_topics,
    library,
    settings,
)
from millwheel.connect.connectors.kafka.consumer import TopicShare
from millwheel.connect.connectors.kafka.source_options import KafkaSourceOptions
from millwheel.errors import MillwheelError, SetupError

log = logging.getLogger("millwheel.kafka")
_EVERY_S = 5.0  # between listings, to find new partitions
_INTERNAL = "__"


@dataclass(frozen=True, slots=True)
class Span:
    """The first offset of a partition for a root that has not read it yet, and its end when it was
    listed."""

    start: int
    end: int


class Listing:
    """Requests about topics; each call blocks until the answer has come."""

    def __init__(self, options: KafkaSourceOptions) -> None:
        self._options = options
        self._kafka = library()
        self._complaints = Complaints(options.brokers)
        self._consumer = self._kafka.Consumer(
            {
                **settings(options.brokers, options.config, self._complaints),
                "group.id": options.start_group() or "millwheel",
                "enable.auto.commit": False,
                "isolation.level": options.isolation,
            }
        )

    def shares(self) -> list[TopicShare]:
        """All partitions of the topics. Raises SetupError when no broker answers, or a topic does
        not exist."""
        topics = existing_topics(self._consumer, self._options.brokers, self._complaints)
        return sorted(
            (name, number) for name in self._requested(topics) for number in topics[name].partitions
        )

    def spans(self, shares: Iterable[TopicShare]) -> dict[TopicShare, Span]:
        """The first offset and the present end of each partition. Raises SetupError when no broker
        answers."""
        try:
            return {share: self._span(share) for share in shares}
        except self._kafka.KafkaException as ex:
            raise SetupError(
                f"the offsets of {', '.join(sorted({topic for topic, _ in shares}))} cannot be read"
                f" from Kafka at {self._options.brokers}: {ex.args[0].str()}"
            ) from ex

    def close(self) -> None:
        """Close the connections."""
        self._consumer.close()

    def _requested(self, topics: Mapping[str, Any]) -> list[str]:
        pattern = self._options.pattern()
        if pattern is not None:
            return [
                name for name in topics if pattern.search(name) and not name.startswith(_INTERNAL)
            ]
        for name in self._options.names():
            if name not in topics or topics[name].error is not None:
                existing = ", ".join(
                    sorted(topic for topic in topics if not topic.startswith(_INTERNAL))[:10]
                )
                raise SetupError(
                    f"Kafka at {self._options.brokers} has no topic {name!r}; create it, or write"
                    " one that exists" + (f" ({existing})" if existing else "")
                )
        return self._options.names()

    def _span(self, share: TopicShare) -> Span:
        low, high = self._consumer.get_watermark_offsets(
            self._kafka.TopicPartition(*share), timeout=ANSWER_S
        )
        return Span(min(max(self._start(share, low, high), low), high), high)

    def _start(self, share: TopicShare, low: int, high: int) -> int:
        at = self._kafka.TopicPartition(*share)
        if (moment := self._options.start_ms()) is not None:
            at.offset = moment
            offset = self._consumer.offsets_for_times([at], timeout=ANSWER_S)[0].offset
            return int(offset) if offset >= 0 else high
        if self._options.start_group() is not None:
            offset = self._consumer.committed([at], timeout=ANSWER_S)[0].offset
            return int(offset) if offset >= 0 else low
        return high if self._options.start == "latest" else low


class ListingThread:
    """Lists the partitions of an unbounded source, and where new ones begin, a few seconds after
    they appear."""

    def __init__(self, options: KafkaSourceOptions) -> None:
        self._options = options
        self._spans: dict[TopicShare, Span] = {}
        self._failed: MillwheelError | None = None
        self._listed = threading.Event()
        self._ends = threading.Event()
        threading.Thread(target=self._run, name="kafka-listing", daemon=True).start()

    def latest(self) -> Mapping[TopicShare, Span] | None:
        """The latest listing, None before the first. Raises SetupError if listing fails."""
        if self._failed is not None and not self._spans:
            raise self._failed
        return self._spans if self._listed.is_set() else None

    def wait(self, seconds: float) -> None:
        """Wait for the first listing, at most this long."""
        self._listed.wait(seconds)

    def close(self) -> None:
        """Stop listing."""
        self._ends.set()

    def _run(self) -> None:
        listing = Listing(self._options)
        while not self._ends.is_set():
            try:
                self._look(listing)
            except MillwheelError as ex:
                if str(ex) != str(self._failed):  # the same every five seconds would fill the logs
                    log.warning("%s. It is asked again every %g s.", ex, _EVERY_S)
                self._failed = ex
            except BaseException as ex:  # a thread that dies would hide new partitions for ever
                self._failed = SetupError(
                    f"Kafka at {self._options.brokers}: {type(ex).__name__}: {ex}"
                )
                log.exception("the partitions cannot be listed")
            self._listed.set()
            self._ends.wait(_EVERY_S)
        listing.close()

    def _look(self, listing: Listing) -> None:
        shares: Sequence[TopicShare] = listing.shares()
        new = listing.spans(share for share in shares if share not in self._spans)
        if self._spans and not isinstance(self._options.start, dict):
            # A partition that appears later is read from its beginning: all of its messages are
            # new.
            new = {share: Span(0, span.end) for share, span in new.items()}
        self._spans = {share: self._spans.get(share) or new[share] for share in shares}
        self._failed = None
