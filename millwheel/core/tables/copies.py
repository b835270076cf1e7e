"""The plan of an enrichment with a table that goes on, of which there are whole copies.

    placed: {input: {orders: {key: shelf}, shelves: {key: shelf}}, enrich: {with: shelves,
        broadcast: true}}

becomes

    copies.placed: takes all changes of the table under one key, and sends each to every copy
    placed: orders by the key of a copy, and the changes of that copy

A copy is the state of one key. So all of a table lies beside the records that ask for it, and moves
with them: a split gives each child whole copies, and a merge brings copies together that know
nothing of each other. Records go to a copy by the key that they came with, and not by that of their
row; so do those that take them back. Beside it they wait for the watermark behind the changes, as
where the table is divided by its key.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import cache

from millwheel.core.model.keys import Key, key_hash
from millwheel.core.model.ranges import SPACE
from millwheel.core.pipeline.keys import OWN_KEY, KeyKind, KeySpec
from millwheel.core.pipeline.spec import ComputationSpec, InputSpec, PipelineSpec
from millwheel.core.pipeline.work import CopiesSpec, EnrichSpec
from millwheel.core.tables.planning import declared_name

COPIES = 8
"""As many as the workers of a middling run; each more costs the memory of the table, and one more
production of each change."""
MOST_COPIES = 256
"""Beyond that a change would be too many productions for one call."""
_PREFIX = "copies."


def with_copies(spec: PipelineSpec) -> PipelineSpec:
    """The pipeline as it runs: with the copies of tables in front of enrichments that want them."""
    return replace(
        spec, computations=tuple(each for whole in spec.computations for each in _stages(whole))
    )


def _stages(whole: ComputationSpec) -> Iterator[ComputationSpec]:
    work = whole.work
    if not isinstance(work, EnrichSpec) or work.broadcast is None or work.held:
        yield whole
        return
    [table] = (each for each in whole.inputs if each.stream == work.stream)
    [other] = (each for each in whole.inputs if each.stream != work.stream)
    copies, name = work.broadcast.copies or COPIES, _PREFIX + whole.name
    limit_bytes, of = work.broadcast.limit_bytes, declared_name(work.stream)
    yield ComputationSpec(
        name,
        (InputSpec(table.stream, KeySpec(KeyKind.ALL)),),
        (name,),
        CopiesSpec(of, table.key, copies, limit_bytes, work.upserts, work.delete),
        max_attempts=whole.max_attempts,
        on_error=whole.on_error,
        shards=1,
        where=whole.where,
    )
    own = InputSpec(other.stream, replace(OWN_KEY, copies=copies))
    broadcast = replace(work.broadcast, copies=copies, by=other.key)
    # What deletes is told before it is copied.
    work = replace(work, stream=name, of=of, broadcast=broadcast, upserts=False, delete="")
    yield replace(
        whole,
        inputs=(own, InputSpec(name, OWN_KEY)),
        work=work,
    )


@cache
def copy_keys(copies: int) -> tuple[int, ...]:
    """The keys of so many copies: the least numbers whose hashes lie in equal parts of the space,
    one in each. State depends on them."""
    key_of_part: dict[int, int] = {}
    number = 0
    while len(key_of_part) < copies:
        key_of_part.setdefault(key_hash(number) * copies // SPACE, number)
        number += 1
    return tuple(key_of_part[part] for part in range(copies))


def copy_key(key: Key, copies: int) -> int:
    """The key of the copy for records with this key: in the part of the space where that lies, so
    that they mostly stay where they are."""
    return copy_keys(copies)[key_hash(key) * copies // SPACE]
