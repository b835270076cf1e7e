"""From the outcomes of questions to a reply, and replies that wait for outcomes: a question of
another worker's key is redirected, the parts of a formula are gathered. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate, islice
from typing import Protocol, cast, runtime_checkable

import msgspec

from millwheel.core.slices.slots import slot_of
from millwheel.engine.queries import resp
from millwheel.engine.queries.cluster import ClusterMap
from millwheel.engine.queries.model import Answer, Consistency, Elsewhere, Found, Query, QueryError
from millwheel.engine.queries.names import QueryPlan
from millwheel.engine.queries.peers.health import ErrorShare
from millwheel.engine.queries.rendering import error_reply

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
    """The worker to ask; its address is "" when it is not known."""
    owner = addresses.get(elsewhere.owner, "")
    stale = query.consistency in (Consistency.STANDBY, Consistency.SNAPSHOT)
    standby = addresses.get(elsewhere.standby, "") if stale else ""
    return AskedElsewhere(query, owner or standby, standby)
