"""The plan of an aggregation with divided keys: a partial computation, and a final one that merges.

    traffic: {input: {hits: {key: path}}, window: …, aggregate: …, skew: scatter(4)}

becomes

    partial.traffic: hits by (path, instance), emits the accumulators of its windows into a stream
        of its name
    traffic: partial.traffic by path, merges accumulators, and emits the results

The instance of a record is a function of its number or of its id, and a replay finds both again. So
no choice is ever made anew, and no table is needed. With ``skew: auto`` only hot keys are divided,
and the records of all others go to instance 0. With the name of a grouping, the grouping chooses,
and an instance is a fixed range in the space of hashes: a slot. Both go by tables: a source commits
them before it sends (core/grouping/epochs.py), and productions are stored with their instances
(core/grouping/current.py).

The watermark of the final computation is held by the windows and productions of the partial one, as
everywhere: its windows close once all partial ones have.

A partial computation has only pieces of a session (see windows.SessionPieces). They have the time
of their first record, and the final computation makes sessions of pieces that overlap. Windows that
share their records are made of pieces, too (windows.WindowPieces): sliding ones that emit changes,
and cumulative ones; and so are slices.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import numpy.typing as npt
import xxhash

from millwheel.core.model.keys import Key, KeyHash, key_hash
from millwheel.core.pipeline.keys import KeyKind, KeySpec
from millwheel.core.pipeline.spec import (
    AggregationStage,
    ComputationSpec,
    InputSpec,
    PipelineSpec,
    Productions,
    StreamSpec,
)
from millwheel.core.pipeline.work import AggregationSpec, FiringSpec, SlicesSpec, WindowSpec
from millwheel.core.slices.slots import SLOTS, WIDTH, slot_hash
from millwheel.errors import RecordError

_SPREAD = 0x9E37_79B9_7F4A_7C15  # Fixed: 2**64 divided by the golden ratio, as in Fibonacci hashing
_WORD = 2**64 - 1  # Fixed: 64 bits
_UPPER_BITS = 32  # Fixed: the half of a product that depends on all bits of the number
_HASH_BITS = 64  # Fixed: of a hash
_PREFIX = "partial."
_KEY = "key"


def planned(spec: PipelineSpec) -> PipelineSpec:
    """The pipeline as it runs: with a partial computation before each one whose keys are
    divided."""
    if not any(each.scatter > 1 for each in spec.computations):
        return spec
    return replace(
        spec, computations=tuple(each for whole in spec.computations for each in _stages(whole))
    )


def _stages(whole: ComputationSpec) -> Iterator[ComputationSpec]:
    if whole.scatter == 1 or whole.stage is not AggregationStage.WHOLE:
        yield whole
        return
    (node_input,), work = whole.inputs, whole.work
    assert isinstance(work, AggregationSpec | SlicesSpec), f"{whole.name} has no aggregates"
    stream = _PREFIX + whole.name
    divided = InputSpec(
        node_input.stream, replace(node_input.key, instances=whole.scatter, divided=whole.divided)
    )
    yield replace(
        whole,
        name=stream,
        inputs=(divided,),
        outputs=(stream,),
        work=_pieces(work),
        stage=AggregationStage.PARTIAL,
        productions=Productions.STRONG if _fires_again(work) else whole.productions,
    )
    key = node_input.key
    if key.kind is not KeyKind.ALL:
        plain = key.fields
        kind = KeyKind.FIELDS if len(plain) > 1 else KeyKind.FIELD
        key = KeySpec(kind, plain or (_KEY,), nulls=key.nulls)
    yield replace(
        whole,
        inputs=(InputSpec(stream, key),),
        work=replace(work, condition=""),
        stage=AggregationStage.FINAL,
    )


def _fires_again(work: AggregationSpec | SlicesSpec) -> bool:
    """Whether a part emits a piece more than once: at its end, and later records after that. Weak
    productions have ids by their order, and after a crash the first may contain the later records,
    which would then be dropped as a copy. See mistake weak_pieces_of_windows."""
    if isinstance(work, SlicesSpec):
        return True
    return work.window.kind in ("cumulative", "session") or bool(work.window.options.get("changes"))


def _pieces(work: AggregationSpec | SlicesSpec) -> AggregationSpec:
    """The work of the partial stage."""
    if isinstance(work, SlicesSpec):
        # All records come: where slices expire, it is decided which are too late.
        options = {"size_us": work.levels_us[0], "time_zone": work.time_zone}
        return AggregationSpec(
            window=WindowSpec("slices", options),
            condition=work.condition,
            firing=FiringSpec(allowed_lateness_us=work.keep_us, late=work.late),
            aggregates=work.aggregates,
        )
    # A final session ends once no open piece can begin before its end: pieces hold the watermark at
    # their first record. See mistake pieces_of_sessions_hold_their_ends.
    at = "earliest" if work.window.kind == "session" else work.firing.output_time
    return replace(work, firing=replace(work.firing, output_time=at, accumulation="discarding"))


def aggregated_stream(final: ComputationSpec, spec: PipelineSpec) -> StreamSpec:
    """The stream whose records the partial stage of a final computation aggregates."""
    (partial,) = (each for each in spec.computations if each.outputs == (final.inputs[0].stream,))
    return spec.stream(partial.inputs[0].stream)


def divided_keys(
    key: KeySpec,
    keys: Sequence[Any],
    seqs: Sequence[int],
    ids: Sequence[Any] | None,
    timestamps: Sequence[int],
    hot: Sequence[bool] | None = None,
) -> list[Any]:
    """Keys with the instance of each record. Copies of a record have the same id and must reach the
    same shard, which has stored the id; other records differ by their numbers. Weak productions
    without either may arrive twice in any case. ``hot``: the records whose keys are divided, all if
    None."""
    numbers = seqs or timestamps
    if ids is None:
        instances = [instance_of(number, key.instances) for number in numbers]
    else:
        pairs = zip(ids, numbers, strict=True)
        instances = [
            instance_of(number if id is None else _number(id), key.instances)
            for id, number in pairs
        ]
    if hot is not None:
        instances = [
            instance if divided else 0 for instance, divided in zip(instances, hot, strict=True)
        ]
    return with_instances(key, keys, instances)


def with_instances(key: KeySpec, keys: Sequence[Any], instances: Sequence[int]) -> list[Any]:
    """Keys with the instance of each record as their last part."""
    if len(key.names) > 1:
        return [(*whole, instance) for whole, instance in zip(keys, instances, strict=True)]
    return list(zip(keys, instances, strict=True))


@cache
def hash_by_slot(instances: int) -> KeyHash:
    """The hash function of divided keys whose instances are slots: in order of instances, so that
    all keys of an instance are in one shard. They begin at slots (core/slices/slots.py), and key
    ranges are never cut within one."""
    firsts = [instance * SLOTS // instances * WIDTH for instance in range(instances)]
    below = WIDTH.bit_length() - 1

    def hashed(key: Key) -> int:
        try:
            first: int = firsts[key[-1]]
        except (TypeError, IndexError):
            reason = (
                f"{key!r} is not a divided key: its last part is its instance, 0 to {instances - 1}"
            )
            raise RecordError(reason) from None
        return first + (key_hash(key) >> (_HASH_BITS - below))

    return hashed


def hash_of_keys(computation: ComputationSpec | None) -> KeyHash:
    """The hash function of a node's keys; None: the node is not a computation."""
    if computation is None:
        return key_hash
    if isinstance(computation.work, SlicesSpec):
        return slot_hash
    slots = slots_of_keys(computation)
    return hash_by_slot(slots) if slots else key_hash


def slots_of_keys(computation: ComputationSpec) -> int:
    """The number of instances of a computation's keys that are slots; 0: none."""
    key = computation.inputs[0].key if len(computation.inputs) == 1 else None
    return key.instances if key is not None and key.instances > 1 and key.divided.by_slots else 0


def instance_of(number: int, instances: int) -> int:
    """The instance of the record with this number."""
    return ((number * _SPREAD & _WORD) >> _UPPER_BITS) % instances


def instances_of(numbers: npt.NDArray[np.int64], instances: int) -> npt.NDArray[np.int64]:
    """:func:`instance_of` for each."""
    spread = numbers.astype(np.uint64) * np.uint64(_SPREAD)
    chosen: npt.NDArray[np.int64] = (
        (spread >> np.uint64(_UPPER_BITS)) % np.uint64(instances)
    ).astype(np.int64)
    return chosen


def _number(id: Any) -> int:
    return xxhash.xxh3_64_intdigest(id if isinstance(id, bytes) else repr(id).encode())
