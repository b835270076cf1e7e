"""Checks of nodes behind a change log: its versions are many, and chance decides which."""

from __future__ import annotations

from collections.abc import Container

from millwheel.core.pipeline.graph import retracting_streams
from millwheel.core.pipeline.spec import ComputationSpec, PipelineSpec
from millwheel.core.pipeline.work import (
    FOREVER,
    AggregationSpec,
    EnrichSpec,
    OverSpec,
    SlicesSpec,
    TopSpec,
)
from millwheel.core.windows.panes import Accumulation
from millwheel.language.spec.change_logs import consumers, undoes
from millwheel.language.spec.checks.topology import find
from millwheel.language.spec.reading.nodes import YamlNode
from millwheel.language.spec.reading.reader import NodeReader


def check_change_logs(reader: NodeReader, spec: PipelineSpec, top: YamlNode) -> None:
    """Note computations whose results would depend on bundles, behind the versions of a change
    log."""
    for log in spec.computations:
        _check_having(reader, log, top)
        if not _changes_rows(log) and (log.windowed is None or not _fires_again(log)):
            continue
        for each in consumers(log.outputs, spec):
            _check_consumer(reader, log, each, top)
    for stream in spec.streams:
        for each in consumers((stream.name,), spec) if stream.table is not None else ():
            if _goes_by_time(each):
                word = _by_time(each)
                reader.bad(
                    find(top, "computations", each.name, word),
                    f"its input comes from the table {stream.name!r}, and chance decides which"
                    f" changes its rows have, and when; leave out {word}, or leave out table"
                    " where every record counts",
                )


def _fires_again(computation: ComputationSpec) -> bool:
    """Whether later results of a group replace earlier ones, which nothing takes back or counts."""
    firing = computation.firing
    return computation.is_change_log or (
        firing.trigger is not None and firing.accumulation == Accumulation.ACCUMULATING.value
    )


def _changes_rows(computation: ComputationSpec) -> bool:
    return isinstance(computation.work, TopSpec)


def _check_consumer(
    reader: NodeReader, log: ComputationSpec, consumer: ComputationSpec, top: YamlNode
) -> None:
    if reader.problems.concerns(f"computations.{consumer.name}"):
        return
    word = _by_time(consumer)
    node = find(top, "computations", consumer.name, word)
    if (log.is_change_log or _changes_rows(log)) and _goes_by_time(consumer):
        reader.bad(
            node,
            f"its input comes from the change log {log.name!r}, and chance decides which"
            f" versions it has, and when; leave out {word}"
            + (f", or give {log.name!r} a window" if log.is_change_log else ""),
        )
    elif (
        log.firing.accumulation == Accumulation.ACCUMULATING.value
        and undoes(consumer)
        and not _takes_as_versions(consumer, log)
    ):
        reader.problems.warn(
            node.line,
            node.path,
            f"{consumer.name!r} counts each version that {log.name!r} emits of a group, as they"
            f" come; let {log.name!r} take back what it replaces: write accumulation: retracting"
            + (" there, or leave it out" if log.is_change_log else " there"),
        )


def check_kept_versions(
    reader: NodeReader, spec: PipelineSpec, top: YamlNode, replacing: Container[str]
) -> None:
    """Notes sinks that keep all versions of a group as rows. ``replacing``: the streams whose sinks
    replace rows."""
    back = retracting_streams(spec)
    for log in filter(lambda each: each.is_change_log, spec.computations):
        for sink in spec.sinks:
            kept = sink.stream in log.outputs and sink.stream not in back
            if not kept or sink.stream in replacing or sink.kind == "stdout":
                continue
            node = find(top, "sinks", sink.stream, sink.kind)
            reader.problems.warn(
                node.line,
                node.path,
                f"each version of the change log {log.name!r} becomes a row here, and the last of a"
                " group counts; a sink with mode: upsert keeps that alone",
            )


def _takes_as_versions(consumer: ComputationSpec, log: ComputationSpec) -> bool:
    """Whether each version holds there until the next one."""
    return isinstance(consumer.work, EnrichSpec) and consumer.work.stream in log.outputs


def _by_time(computation: ComputationSpec) -> str:
    if isinstance(computation.work, OverSpec):
        return "over"
    return "slices" if isinstance(computation.work, SlicesSpec) else "window"


def _goes_by_time(computation: ComputationSpec) -> bool:
    """Whether the time of a record decides its group."""
    if isinstance(computation.work, SlicesSpec | OverSpec):
        return True
    work = computation.windowed
    return work is not None and work.window.kind not in ("global", FOREVER)


def _check_having(reader: NodeReader, log: ComputationSpec, top: YamlNode) -> None:
    work = log.work
    if not isinstance(work, AggregationSpec) or not work.having:
        return
    again = log.firing.trigger is not None or log.firing.allowed_lateness_us
    if again and log.firing.accumulation == Accumulation.ACCUMULATING.value:
        reader.bad(
            find(top, "computations", log.name, "having"),
            "a result that does not satisfy having any more would stand for ever, as nothing"
            " replaces it; write accumulation: retracting",
        )
