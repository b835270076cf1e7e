"""Keys, windows, triggers, aggregates and guarantees in a few words."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from millwheel.core.grouping.base import hot_share
from millwheel.core.grouping.catalogue import COPIES, RULES
from millwheel.core.grouping.distribution import DistributionKey
from millwheel.core.model.times import duration_text
from millwheel.core.order.chains import Chains
from millwheel.core.pipeline.keys import Divided, KeyKind, KeySpec
from millwheel.core.pipeline.spec import AggregationStage, ComputationSpec, Delivery, StreamSpec
from millwheel.core.pipeline.steps import step_text as _written
from millwheel.core.pipeline.table_changes import KEY_FIELD
from millwheel.core.pipeline.tables import declared_name
from millwheel.core.pipeline.work import (
    FOREVER,
    AggregateSpec,
    BranchesSpec,
    CopiesSpec,
    DeduplicateSpec,
    DictionarySpec,
    EnrichSpec,
    IntervalJoinSpec,
    LookupSpec,
    OverSpec,
    RegularJoinSpec,
    SlicesSpec,
    StepSpec,
    StepsSpec,
    TableSpec,
    TopSpec,
    WindowSpec,
    Work,
)

_MISSING = {"keep": "null", "drop": "dropped", "dead_letter": "a dead letter"}
_SHELF = re.compile(r"[\w.]+:(?:\w+|held\.p\d+)\.code\.\w+")
"""Code of a Python pipeline that has no name of its own: a lambda, a nested function, an object."""


def code_text(name: str) -> str:
    """``module:name``, or a phrase for code without a name."""
    return "(own code)" if _SHELF.fullmatch(name) else name


def key_text(key: KeySpec) -> str:
    """``by path``, ``by path, over 4 instances``; "" for the key of the producer."""
    hot = "hot keys " if key.divided is Divided.HOT else ""
    rule = f", {key.divided.value}" if key.divided.by_slots else ""
    over = f"{hot}over {key.instances} instances{rule}" if key.instances > 1 else ""
    over = f"in {key.partitions} partitions" if key.partitions else over
    over = f"spread over {key.copies} copies" if key.copies else over
    if key.names == (KEY_FIELD,):
        return "by primary key"
    if key.kind is KeyKind.ALL:
        return ", ".join(filter(None, ("everything in one group", over)))
    parts = [code_text(name) for name in key.names]
    if key.texts:
        pairs = zip(key.names, key.texts, strict=True)
        parts = [name if name == text else f"{name} = {text}" for name, text in pairs]
    names = f"by {', '.join(parts)}" if parts else ""
    return ", ".join(filter(None, (names, over, "null is a group" if key.nulls else "")))


def slices_text(slices: SlicesSpec) -> str:
    """The lengths of slices, and how long they are kept."""
    levels = ", ".join(map(duration_text, slices.levels_us))
    words = [f"slices of {levels}", f"kept {duration_text(slices.keep_us)}"]
    if slices.time_zone:
        words.append(f"days of {slices.time_zone}")
    if slices.ttl_us is not None:
        words.append(f"idle keys {duration_text(slices.ttl_us)}")
    return ", ".join(words)


def window_text(window: WindowSpec) -> str:
    """``sliding 1h every 10ms, changes only``."""
    options = window.options
    if window.kind == FOREVER:
        kept = options.get("ttl_us")
        return f"groups kept {duration_text(kept)}" if kept else "groups without an end"
    if window.kind == "custom":
        return f"custom {code_text(options['factory'])}"
    if window.kind == "session":
        return f"sessions, gap {duration_text(options['gap_us'])}"
    if window.kind == "count":
        return f"{options['count']} records"
    if window.kind == "of":
        return "windows of the input's results"
    words = [window.kind]
    if "size_us" in options:
        words.append(duration_text(options["size_us"]))
    if "every_us" in options:
        words.append(f"every {duration_text(options['every_us'])}")
    more = [options.get("time_zone", ""), "changes only" if options.get("changes") else ""]
    if options.get("empty"):
        more.append("empty once a key is silent")
    if options.get("offset_us"):
        more.insert(0, f"offset {duration_text(options['offset_us'])}")
    return ", ".join([" ".join(words), *(word for word in more if word)])


def stage_text(stage: AggregationStage) -> str:
    """The task of a stage of an aggregation with divided keys."""
    return "emits accumulators" if stage is AggregationStage.PARTIAL else "merges accumulators"


def division_text(key: KeySpec, read: bool) -> str:
    """The number of instances of a divided key, and the party that chooses them. ``read``: a source
    does, as it reads."""
    if not key.divided.by_tables:
        return "every key has all instances, by the numbers or ids of its records"
    rule = RULES[key.divided.value]
    most = COPIES.get(rule.name, 1)
    copies = "every key has all instances"
    if most is not None:
        copies = f"a key has {most} instances at most" if most > 1 else "a key has 1 instance"
        if rule.counts_keys and rule is not DistributionKey:
            copies += (
                f", one with more than {100 * hot_share(key.instances):.2g} % of the records more"
            )
    by = (
        "chosen by the source, for each epoch anew"
        if read
        else "chosen as records are produced, and stored with them"
    )
    return f"{copies}; {by}"


def aggregate_text(aggregate: AggregateSpec) -> str:
    """``p99 = quantile(latency_ms, q=0.99) where status < 500``."""
    arguments = [aggregate.argument] if aggregate.argument else []
    arguments += [f"{name}={value}" for name, value in aggregate.options.items()]
    function = code_text(aggregate.function)
    call = f"{function}({', '.join(arguments)})" if arguments else function
    return f"{aggregate.name} = {call}" + (
        f" where {aggregate.condition}" if aggregate.condition else ""
    )


def trigger_text(tree: Any) -> str:
    """``after watermark (early: after count 2)``."""
    if isinstance(tree, Mapping) and len(tree) == 1:
        name, argument = next(iter(tree.items()))
        return f"{_plain(name)} {_inner(argument)}".strip()
    return _inner(tree)


def repeated_text(tree: Any) -> str:
    """When a change log emits: ``what each bundle changes``, ``every 1s``."""
    match tree:
        case {"repeat": {"after_count": 1}}:
            return "what each bundle changes"
        case {"every": time}:
            return f"every {time}"
    return trigger_text(tree)


def _inner(tree: Any) -> str:
    if tree is None:
        return ""
    if isinstance(tree, list):
        return f"({', '.join(trigger_text(part) for part in tree)})"
    if isinstance(tree, Mapping):
        parts = [f"{_plain(name)}: {trigger_text(value)}" for name, value in tree.items()]
        return trigger_text(tree) if _is_trigger(tree) else f"({', '.join(parts)})"
    return _plain(tree) if isinstance(tree, str) else str(tree)


def _is_trigger(tree: Mapping[str, Any]) -> bool:
    from millwheel.core.windows.trees import NAMES

    return len(tree) == 1 and next(iter(tree)) in NAMES


def _plain(word: str) -> str:
    return code_text(word) if ":" in word else word.replace("_", " ")


def step_text(step: StepSpec) -> str:
    """``filter status < 500``."""
    return _written(replace(step, function=code_text(step.function)))


def late_text(computation: ComputationSpec) -> str:
    """How late records are treated; "" when they are dropped at once."""
    side, lateness = computation.late_side, computation.firing.allowed_lateness_us
    after = (
        f"to {side}"
        if side
        else {"drop": "dropped", "refire": "fired on their own"}[computation.late]
    )
    if lateness:
        return f"late records taken for {duration_text(lateness)}, then {after}"
    if isinstance(computation.work, SlicesSpec):
        return f"records older than that {after}"
    return f"late records {after}" if computation.takes_late else ""


def guarantee_text(computation: ComputationSpec) -> str:
    """``exactly once, strong · 8 shards, 1 standby``."""
    delivery = "exactly once" if computation.delivery is Delivery.EXACTLY_ONCE else "at least once"
    shards = "2 shards per worker" if computation.shards is None else f"{computation.shards} shards"
    standby = f", {computation.standby} standby" if computation.standby else ""
    return f"{delivery}, {computation.productions.value} · {shards}{standby}"


def chain_texts(node: str, chains: Chains) -> Iterator[str]:
    """In whose shards a node runs that is chained, or why it is not behind one that could be."""
    if node in chains.before:
        yield f"chained: runs in the shards of {chains.head(node)}"
    elif node in chains.why_not:
        yield f"not chained: {chains.why_not[node]}"


def watermark_text(stream: StreamSpec) -> str:
    """``watermark 2m behind the newest``, and all settings that differ from the defaults."""
    if stream.arrival:
        return "watermark by the clock"
    behind = (
        f"{duration_text(stream.max_delay_us)} behind the newest"
        if stream.max_delay_us
        else "in order"
    )
    default = StreamSpec("")
    if stream.idle_after_us == default.idle_after_us:
        return f"watermark {behind}"
    idle = (
        "never idle"
        if stream.idle_after_us is None
        else f"idle after {duration_text(stream.idle_after_us)}"
    )
    return f"watermark {behind}, {idle}"


def types_texts(stream: StreamSpec) -> Iterator[str]:
    """The origin of undeclared field types, if messages carry them."""
    assert stream.source is not None
    options = stream.source.options
    form = options.get("format")
    named = (
        form if isinstance(form, str) else next(iter(form), "") if isinstance(form, Mapping) else ""
    )
    beside = any(options.get(name) for name in ("key_field", "timestamp_field", "headers_field"))
    if (
        stream.source.kind == "kafka"
        and named == "avro"
        and not (stream.fields or stream.schema or beside)
    ):
        yield "fields of the Avro schema, in columns where all consumers take them"


def lookup_text(lookup: LookupSpec) -> str:
    """``info looked up in redis, cached: 10000 for 5m; without: null``."""
    added = lookup.name or ", ".join(lookup.fields)
    by = f" by {', '.join(lookup.by)}" if lookup.by else ""
    cache_text = (
        f", cached: {lookup.cache_size} for {duration_text(lookup.cache_ttl_us)}"
        if lookup.cache_size
        else ""
    )
    missing = _MISSING[lookup.missing.value]
    return f"{added} looked up in {lookup.kind}{by}{cache_text}; without: {missing}"


def _ordinal(number: int) -> str:
    """Of a number that counts from 0."""
    return f"{number + 1}th" if number > 2 else ("first", "second", "third")[number]


def _interval_texts(work: IntervalJoinSpec) -> Iterator[str]:
    yield f"{work.kind.value} join of records that lie near each other in time"
    apart = [
        f"{duration_text(most)} {word}"
        for most, word in ((work.before_us, "before"), (work.after_us, "behind"))
        if most is not None
    ]
    if apart:
        yield f"the second at most {' and '.join(apart)} the first"
    if work.froms:
        yield f"a partner not before {', '.join(each.expression for each in work.froms)}"
    if work.untils:
        yield f"a partner not behind {', '.join(each.expression for each in work.untils)}"
    yield "keeps a record until the watermark has passed the last partner that it may have"


def _over_texts(work: OverSpec) -> Iterator[str]:
    which = (
        "all records of the key before it"
        if work.size is None
        else f"the {work.size - 1} records of the key before it"
        if work.by_rows
        else f"those of the key in the {duration_text(work.size)} before it"
    )
    yield f"each record in order of time, with aggregates of itself and {which}"
    if work.ttl_us is not None:
        yield f"a key without a record for {duration_text(work.ttl_us)} begins anew"


def work_texts(work: Work) -> Iterator[str]:
    """The parts of a computation without window and callback, one line each."""
    match work:
        case StepsSpec():
            yield from (step_text(step) for step in work.steps)
        case DeduplicateSpec():
            by = ", ".join(work.fields) or "value"
            yield f"deduplicate by {by} within {duration_text(work.within_us)}"
        case TopSpec(upserts=True):
            yield "the row of each key: the last record by time, then by its place in the source"
            if work.delete:
                yield f"none where {work.delete}"
        case TopSpec(by=()):
            yield f"the {'latest' if work.latest else 'earliest'} record of each key, as it changes"
        case TopSpec():
            ranked = f", {work.rank}: the place" if work.rank else ""
            yield f"the first {work.k} by {', '.join(work.by)}, as they change{ranked}"
        case OverSpec():
            yield from _over_texts(work)
        case BranchesSpec():
            for branch in work.branches:
                yield f"{branch.stream}: {branch.condition or 'what no other takes'}"
            if work.match_all:
                yield "to every branch that fits"
        case EnrichSpec():
            when = "as of its time" if work.waits else "as of now"
            when = "once all of it is there" if work.timeless else when
            when += ", held whole by each worker" if work.held else ""
            copies = work.broadcast.copies if work.broadcast is not None and work.copied else 0
            when += f", in {copies} whole copies" if copies else ""
            of = work.of or declared_name(work.stream)
            yield f"{work.name} from {of} {when}; without: {_MISSING[work.missing.value]}"
        case RegularJoinSpec():
            several = f", of {len(work.ttls_us)} inputs" if len(work.ttls_us) > 2 else ""
            yield f"{work.kind.value} join of all records with equal keys{several}"
            lives = [
                f"of the {_ordinal(number)} input for {duration_text(ttl)}"
                for number, ttl in enumerate(work.ttls_us)
                if ttl is not None
            ]
            yield f"keeps them {' and '.join(lives)}" if lives else "keeps them for ever"
        case IntervalJoinSpec():
            yield from _interval_texts(work)
        case LookupSpec():
            yield lookup_text(work)
        case DictionarySpec():
            forgets = (
                f", forgotten after {duration_text(work.ttl_us)}" if work.ttl_us is not None else ""
            )
            yield f"{work.name}: a number for each {work.of}{forgets}"
        case CopiesSpec():
            yield f"each change of {work.of}, to each of {work.copies} copies"
        case TableSpec():
            by = ", ".join(work.key) or "the key of the message"
            yield f"rows by {by}; events that repeat or are older change nothing"
