"""From the outcomes of questions to replies of the Redis protocol and to JSON, and replies that
wait for outcomes: a question of another worker's key is redirected, the parts of a formula are
gathered. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from itertools import accumulate, islice
from typing import Any, Protocol, cast, runtime_checkable

import msgspec

from millwheel.core.slices.slots import slot_of
from millwheel.engine.queries import resp
from millwheel.engine.queries.cluster import ClusterMap
from millwheel.engine.queries.health import ErrorShare
from millwheel.engine.queries.model import Answer, Consistency, Elsewhere, Found, Query, QueryError
from millwheel.engine.queries.names import QueryPlan
from millwheel.engine.queries.resp import bulk, error, mapping, null

_json = msgspec.json.Encoder(enc_hook=repr).encode
_RETRY = {"unavailable": "TRYAGAIN"}
_decode = msgspec.json.Decoder().decode


def value_text(value: object) -> bytes | None:
    """A value as text: numbers in digits, text as it is, None as None, anything else as JSON."""
    match value:
        case None:
            return None
        case bool():
            return b"1" if value else b"0"
        case int():
            return b"%d" % value
        case float():
            return repr(value).encode()
        case str():
            return value.encode()
        case Decimal():
            return str(value).encode()
        case bytes():
            return value
        case _:
            return _json(value)


def value_reply(value: object, protocol: int) -> bytes:
    """A value as a bulk string, or the null of the protocol."""
    text = value_text(value)
    return null(protocol) if text is None else bulk(text)


def get_reply(answer: Answer, protocol: int) -> bytes:
    """GET: the value; if there are several, a JSON object."""
    if len(answer.values) == 1:
        (value,) = answer.values.values()
        return (
            b"$%d\r\n%d\r\n" % (len(str(value)), value)
            if type(value) is int
            else value_reply(value, protocol)
        )
    return bulk(_json(dict(answer.values)))


def hash_reply(answer: Answer, protocol: int) -> bytes:
    """HGETALL: the values, and ``covered_start``, ``covered_end``, ``watermark`` (µs) and
    ``complete`` (0 or 1). An answer of a standby also has ``consistency``, ``commit``, and ``lag``
    (µs) if known."""
    parts = {name: value_reply(value, protocol) for name, value in answer.values.items()}
    for name, time_us in (
        ("covered_start", answer.covered_start_us),
        ("covered_end", answer.covered_end_us),
    ):
        if time_us is not None:
            parts[name] = bulk(b"%d" % time_us)
    parts["watermark"] = bulk(b"%d" % answer.watermark_us)
    parts["complete"] = bulk(b"1" if answer.complete else b"0")
    if answer.consistency is Consistency.STANDBY:
        parts["consistency"], parts["commit"] = bulk(b"standby"), bulk(b"%d" % answer.commit)
        if answer.lag_us is not None:
            parts["lag"] = bulk(b"%d" % answer.lag_us)
    return mapping(parts, protocol)


def document(answer: Answer) -> Mapping[str, Any]:
    """An answer with all its attributes."""
    return {
        "values": dict(answer.values),
        "covered_start": answer.covered_start_us,
        "covered_end": answer.covered_end_us,
        "watermark": answer.watermark_us,
        "complete": answer.complete,
        "shard": answer.shard,
        "token": answer.token,
        "commit": answer.commit,
        "consistency": answer.consistency.value,
        "lag": answer.lag_us,
    }


def answer_of(data: bytes) -> Answer:
    """The answer in the JSON of a :func:`document`."""
    return answer_from(_decode(data))


def answer_from(fields: Mapping[str, Any]) -> Answer:
    """The inverse of :func:`document`."""
    return Answer(
        fields["values"],
        fields["covered_start"],
        fields["covered_end"],
        fields["watermark"],
        fields["complete"],
        fields["shard"],
        fields["token"],
        fields["commit"],
        Consistency(fields["consistency"]),
        fields.get("lag"),
    )


def json_reply(answer: Answer) -> bytes:
    """MW.QUERY: :func:`document` as JSON."""
    return bulk(_json(document(answer)))


def error_reply(ex: QueryError) -> bytes:
    """An error of the protocol: its code, and a sentence."""
    kind = _RETRY.get(ex.code)
    return error(ex.sentence, kind) if kind else error(f"{ex.code}: {ex.sentence}")


_UNKNOWN = resp.error("the key's worker is not known yet; ask again", "TRYAGAIN")


@runtime_checkable
class Pending(Protocol):
    """A reply that needs answers first."""

    queries: Sequence[Query]

    def reply(self, outcomes: Sequence[Found]) -> bytes | Gather:
        """The reply, from the outcomes of :attr:`queries` in order."""


class Formed(msgspec.Struct):
    """A reply that ``write`` makes of the outcomes."""

    queries: Sequence[Query]
    write: Callable[[Sequence[Found]], bytes | Gather]

    def reply(self, outcomes: Sequence[Found]) -> bytes | Gather:
        return self.write(outcomes)


@dataclass(frozen=True, slots=True)
class AskedElsewhere:
    """A question for another worker. ``standby`` is the address of the worker that may answer in
    its place, "" for none."""

    query: Query
    owner: str
    standby: str = ""

    def others(self) -> Sequence[str]:
        """The addresses of other workers that may answer."""
        return (self.standby,) if self.standby else ()


@dataclass(frozen=True, slots=True)
class Gather:
    """A reply that also needs answers from other workers."""

    questions: Sequence[AskedElsewhere]
    reply: Callable[[Sequence[Answer | QueryError]], bytes]


class Form(msgspec.Struct):
    """How the answers to ``names`` become a reply: each of the ``plans`` computes an answer, and
    ``write`` formats them."""

    names: Sequence[bytes]
    plans: Sequence[QueryPlan]
    write: Callable[[Sequence[Answer]], bytes]
    follows: bool = True
    """Whether READONLY on the connection selects the state that is read."""

    def reply(self, outcomes: Sequence[Found]) -> bytes:
        """The reply, from the answers to all questions of the plans in their order. An error where
        a formula has no value."""
        answers = cast(Sequence[Answer], outcomes)
        if all(plan.plain for plan in self.plans):
            return self.write(answers)
        start, plan_answers = 0, []
        try:
            for plan in self.plans:
                plan_answers.append(plan.answer(answers[start : start + len(plan.questions)]))
                start += len(plan.questions)
        except QueryError as ex:
            return error_reply(ex)
        return self.write(plan_answers)

    def firsts(self, outcomes: Sequence[Found]) -> list[Found]:
        """The outcome of the first question of each plan."""
        starts = accumulate((len(plan.questions) for plan in self.plans), initial=0)
        return [outcomes[start] for start in islice(starts, len(self.plans))]


class Replies:
    """The replies of one connection to questions that the workers of ``cluster`` answer."""

    def __init__(self, cluster: ClusterMap, errors: ErrorShare) -> None:
        self._cluster = cluster
        self._errors = errors

    def of(self, form: Form, queries: Sequence[Query], outcomes: Sequence[Found]) -> bytes | Gather:
        """The reply to ``form``, from the outcomes of its queries in order."""
        errors = self._errors
        if set(map(type, outcomes)) <= {Answer}:
            errors.replied()
            return form.reply(outcomes)
        failure = next((each for each in outcomes if isinstance(each, QueryError)), None)
        errors.replied(failure is not None and failure.failed)
        if failure is not None:
            return error_reply(failure)
        firsts = form.firsts(outcomes)
        if any(isinstance(each, Elsewhere) for each in firsts):
            return self._refusal(form.names, firsts)
        return self._gather(form, queries, outcomes)

    def _gather(
        self, form: Form, queries: Sequence[Query], outcomes: Sequence[Found]
    ) -> bytes | Gather:
        """The owner of a formula's first computation asks the other workers for theirs."""
        addresses = self._cluster.addresses
        others = {
            index: _asked_elsewhere(queries[index], each, addresses)
            for index, each in enumerate(outcomes)
            if isinstance(each, Elsewhere)
        }
        if not all(each.owner for each in others.values()):
            return _UNKNOWN

        def reply(answers: Sequence[Answer | QueryError]) -> bytes:
            whole = list(outcomes)
            for index, answer in zip(others, answers, strict=True):
                if isinstance(answer, QueryError):
                    return error_reply(answer)
                whole[index] = answer
            return form.reply(whole)

        return Gather(list(others.values()), reply)

    def _refusal(self, names: Sequence[bytes], outcomes: Sequence[Found]) -> bytes:
        """The redirection for names that other workers own."""
        owners = {each.owner if isinstance(each, Elsewhere) else "" for each in outcomes}
        if len(owners) > 1:
            return resp.error(
                "the keys are with more than one worker: ask by slots, or one by one", "CROSSSLOT"
            )
        moved = outcomes[0]
        address = self._cluster.addresses.get(moved.owner) if isinstance(moved, Elsewhere) else None
        if address is None:
            return _UNKNOWN
        kind = "ASK" if isinstance(moved, Elsewhere) and moved.for_now else "MOVED"
        return f"-{kind} {slot_of(names[0])} {address}\r\n".encode()


def _asked_elsewhere(
    query: Query, elsewhere: Elsewhere, addresses: Mapping[str, str]
) -> AskedElsewhere:
    """The worker to ask; its address is "" if unknown."""
    owner = addresses.get(elsewhere.owner, "")
    stale = query.consistency in (Consistency.STANDBY, Consistency.SNAPSHOT)
    standby = addresses.get(elsewhere.standby, "") if stale else ""
    return AskedElsewhere(query, owner or standby, standby)
