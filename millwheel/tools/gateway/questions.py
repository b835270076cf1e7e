"""Questions in JSON: the fields of a request, and the questions to workers made of it. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

import msgspec

from millwheel.core.model.keys import Key, check_key
from millwheel.engine.queries.model import Consistency, QueryError
from millwheel.engine.queries.names import Catalog
from millwheel.engine.queries.peer_client import Asking, command_of, no_others
from millwheel.errors import MillwheelError
from millwheel.tools.gateway.owners import Owners

MAX_BATCH = 10_000
"""The most questions in one request; use further requests for more."""
# the default, and the upper bound; a client that waits longer asks again
DEADLINE_MS, MOST_MS = 1_000, 30_000


class RunView(Protocol):
    """The state of a run; another thread keeps it up to date."""

    @property
    def catalog(self) -> Catalog:
        """All that can be asked."""

    @property
    def owners(self) -> Owners:
        """The owners of keys."""


class AskedQuestion(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True):
    """One question. Either ``name``, as in the Redis protocol, or ``key`` with an ``indicator`` (a
    computation, one value of it, or a named query) or a ``formula``. ``window`` is a duration, or
    µs; ``until`` µs UTC."""

    name: str | None = None
    indicator: str | None = None
    formula: str | None = None
    key: Any = None
    window: str | int | None = None
    until: int | None = None
    mode: str = "covering"
    consistency: str = "durable"


class QueryBatch(msgspec.Struct, forbid_unknown_fields=True):
    """A request with many questions. ``stale``: the standby of a silent worker may answer."""

    queries: list[AskedQuestion]
    deadline_ms: int = DEADLINE_MS
    stale: bool = True


decode_batch = msgspec.json.Decoder(QueryBatch).decode
_PARAMETERS = (
    "name",
    "indicator",
    "formula",
    "key",
    "window",
    "until",
    "mode",
    "consistency",
    "deadline_ms",
    "stale",
)


def batch_of(parameters: Mapping[str, str]) -> QueryBatch:
    """The request in the parameters of a GET: one question, whose key is text as in the Redis
    protocol. Raises QueryError."""
    unknown = sorted(parameters.keys() - set(_PARAMETERS))
    if unknown:
        raise QueryError(
            "bad_window",
            f"there is no parameter {unknown[0][:40]!r}; there are {', '.join(_PARAMETERS)}",
        )
    fields = {
        name: text
        for name, text in parameters.items()
        if name not in ("deadline_ms", "stale", "key")
    }
    key = {"key": _Text(parameters["key"])} if "key" in parameters else {}
    try:
        question = msgspec.convert(fields, AskedQuestion, strict=False)
        batch = {name: parameters[name] for name in ("deadline_ms", "stale") if name in parameters}
        query_batch = msgspec.convert({"queries": [], **batch}, QueryBatch, strict=False)
    except msgspec.ValidationError as ex:
        raise QueryError("bad_window", str(ex)) from None
    return msgspec.structs.replace(query_batch, queries=[msgspec.structs.replace(question, **key)])


class _Text(str):
    """A key in a query string: digits may be a number."""

    __slots__ = ()


def deadline_s(batch: QueryBatch) -> float:
    """How long a request may take (s). Raises QueryError for an invalid value."""
    if not 1 <= batch.deadline_ms <= MOST_MS:
        raise QueryError("too_much", f"deadline_ms is from 1 to {MOST_MS}, not {batch.deadline_ms}")
    return batch.deadline_ms / 1_000


def asking_of(question: AskedQuestion, stale: bool, run: RunView) -> Asking:
    """The question, addressed to the owner of its key at the time of sending. Raises QueryError if
    it has no answer anywhere."""
    catalog = run.catalog
    indicator, text, options = _words(question, catalog)
    plan = catalog.planned(indicator, text, {name.lower(): word for name, word in options.items()})
    first = plan.questions[0]
    # with the window of the named query
    query = msgspec.structs.replace(first, indicator=indicator)
    computation, key = first.computation, first.key
    of_standby = first.consistency is Consistency.STANDBY

    def owner() -> str:
        follower = run.owners.others(computation, key) if of_standby else ()
        return follower[0] if follower else run.owners.owner(computation, key)

    return Asking(
        command_of(query, text),
        "",
        (lambda: run.owners.others(computation, key)) if stale else no_others,
        (lambda: run.owners.snapshot_readers(computation, key)) if stale else no_others,
        stale=command_of(query, text, {"CONSISTENCY": "snapshot"}),
        owner=owner,
    )


def _words(question: AskedQuestion, catalog: Catalog) -> tuple[str, str, dict[str, str]]:
    """The indicator, the key as text, and options."""
    options = {"MODE": question.mode, "CONSISTENCY": question.consistency}
    if question.name is not None:
        if (
            question.indicator is not None
            or question.formula is not None
            or question.key is not None
        ):
            raise QueryError("bad_window", "give a name, or an indicator and a key")
        parts = catalog.parts(question.name.encode())
        indicator, text = parts.indicator, parts.key
        options |= {} if parts.window_us is None else {"WINDOW": f"{parts.window_us}us"}
        options |= {} if parts.until_us is None else {"UNTIL": str(parts.until_us)}
    else:
        if (question.indicator is None) == (question.formula is None):
            raise QueryError(
                "unknown_indicator",
                "give an indicator, or a formula, or a name such as clicks:42:3h",
            )
        indicator = question.indicator or question.formula or ""
        text = _text(question.key, indicator, catalog)
    if question.window is not None:
        options["WINDOW"] = (
            question.window if isinstance(question.window, str) else f"{question.window}us"
        )
    if question.until is not None:
        options["UNTIL"] = str(question.until)
    return indicator, text, options


def _text(key: Any, indicator: str, catalog: Catalog) -> str:
    if key is None:
        raise QueryError("wrong_key", "give a key")
    if isinstance(key, _Text):
        return key
    try:
        checked: Key = check_key(tuple(key) if isinstance(key, list) else key)
    except MillwheelError as ex:
        raise QueryError("wrong_key", str(ex)) from None
    return catalog.text(catalog.first(indicator), checked)
