"""The progress of a run for people: one changing line on a terminal, a line now and then elsewhere.

All of it goes to standard error; standard output belongs to the results (the stdout sink, the
summary).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field

from rich.console import Console
from rich.live import Live
from rich.text import Text

from millwheel.core.model.failures import kinds_in
from millwheel.core.model.times import IDLE_TIME, MAX_TIME, MIN_TIME, SECOND, duration_text
from millwheel.core.pipeline.graph import ClusterView, Graph, NodeKind
from millwheel.launch.progress.input_size import Estimate, Expected
from millwheel.launch.progress.summary import reason_texts, total

_PLAIN_INTERVAL_S = 5.0  # between lines of progress without a terminal
_COUNTED = (("records_in", "in"), ("records_out", "out"))
_RATE_WINDOW_S = 3.0  # over which records per second are counted


@dataclass(slots=True)
class RateMeter:
    """Records per second over the last few seconds, from samples of a counter that only rises."""

    samples: deque[tuple[float, int]] = field(default_factory=deque)

    def add(self, now_s: float, count: int) -> float:
        """Take a sample. Returns the present rate."""
        self.samples.append((now_s, count))
        while len(self.samples) > 2 and self.samples[1][0] <= now_s - _RATE_WINDOW_S:
            self.samples.popleft()
        (first_s, first), (last_s, last) = self.samples[0], self.samples[-1]
        return (last - first) / (last_s - first_s) if last_s > first_s else 0.0


class Speed:
    """The line of progress of one run, with the rate since it was last asked for."""

    def __init__(
        self, pipeline: str, graph: Graph, estimate: Estimate | None = None, each_node: bool = False
    ) -> None:
        self._pipeline = pipeline
        self._estimate = estimate
        self._each_node = each_node
        self._graph = graph
        self._rate = RateMeter()

    def text(self, view: ClusterView | None, restarts: Mapping[str, int], now_s: float) -> str:
        """The present line."""
        counters = {name: node.counters for name, node in view.nodes.items()} if view else {}
        records = total(self._graph, counters, "records_in", NodeKind.SOURCE)
        expected = self._estimate.after(records, now_s) if self._estimate is not None else None
        text = progress_text(
            self._pipeline, self._graph, view, self._rate.add(now_s, records), restarts, expected
        )
        return (
            "\n".join([text, *node_lines(self._graph, view)])
            if self._each_node and view is not None
            else text
        )


def progress_text(
    pipeline: str,
    graph: Graph,
    view: ClusterView | None,
    rate: float,
    restarts: Mapping[str, int],
    expected: Expected | None = None,
) -> str:
    """One line: records, rate, lag of each node behind the sources, failures, restarts."""
    died = sum(restarts.values())
    tail = f" · {died} restart{'s' if died > 1 else ''}" if died else ""
    if view is None:
        return f"{pipeline}: starting{tail}"
    counters = {name: node.counters for name, node in view.nodes.items()}
    records = total(graph, counters, "records_in", NodeKind.SOURCE)
    dead = dead_text(view)
    read, remaining = f"{records:,} records", left_text(records, rate, expected)
    return f"{pipeline}: {read} · {rate:,.0f}/s{remaining} · {lag_text(graph, view)}{dead}{tail}"


def left_text(records: int, rate: float, expected: Expected | None) -> str:
    """How much of a bounded input is read, and how long the rest takes at this rate; "" for an
    unbounded one."""
    if expected is None or expected.records <= records:
        return ""
    about = "" if expected.exact else "about "
    share = f" · {records / expected.records:.0%} of {about}{expected.records:,}"
    if rate <= 0:
        return share
    left_us = int((expected.records - records) / rate * SECOND)
    return f"{share}, {duration_text(max(SECOND, left_us - left_us % SECOND))} left"


def node_lines(graph: Graph, view: ClusterView) -> list[str]:
    """A line for each node: records in and out, the distance of its watermark behind its input, and
    the holder of the watermark."""
    width = max(map(len, graph.nodes), default=0)
    return [_node_line(graph, view, name, width) for name in graph.nodes if name in view.nodes]


def _node_line(graph: Graph, view: ClusterView, name: str, width: int) -> str:
    node = view.nodes[name]
    counts = [
        f"{node.counters[each]:>11,} {word}" for each, word in _COUNTED if each in node.counters
    ]
    kind = graph.nodes[name].kind
    behind = (
        ""
        if kind is NodeKind.SOURCE
        else f"  lag {_lag(_front(graph, view, name), node.watermark_us)}"
    )
    held = f"  held by {node.holder}" if node.holder and node.watermark_us < IDLE_TIME else ""
    return f"  {name:<{width}}{''.join(counts)}{behind}{held}"


def dead_text(view: ClusterView) -> str:
    """How many dead letters there are, and why most of them."""
    count = sum(node.counters.get("dead_letters", 0) for node in view.nodes.values())
    reasons = reason_texts({name: kinds_in(node.counters) for name, node in view.nodes.items()})
    most = f" ({reasons[0]}{', …' if len(reasons) > 1 else ''})" if reasons else ""
    return f" · {count:,} dead letter{'s' if count > 1 else ''}{most}" if count else ""


def lag_text(graph: Graph, view: ClusterView) -> str:
    """How far the watermark of each computation is behind the newest of its own inputs, in event
    time."""
    sources = [
        view.nodes[n.name].watermark_us
        for n in graph.nodes.values()
        if _is_read_source(n.name, n.kind, view)
    ]
    if not sources or max(sources) == MIN_TIME:
        return "no watermark yet"
    if min(sources) == MAX_TIME:
        waiting = [
            name
            for name in graph.nodes
            if name in view.nodes and view.nodes[name].watermark_us != MAX_TIME
        ]
        return f"input read, finishing {', '.join(waiting)}" if waiting else "drained"
    names = [
        n.name
        for n in graph.nodes.values()
        if n.kind is NodeKind.COMPUTATION and n.name in view.nodes
    ]
    return "lag " + ", ".join(
        f"{name} {_lag(_front(graph, view, name), view.nodes[name].watermark_us)}" for name in names
    )


def _front(graph: Graph, view: ClusterView, name: str) -> int:
    """The time of a node's newest input. Inputs that have ended or are idle are left out, unless
    all are."""
    times = [
        view.nodes[feeder].watermark_us for feeder in graph.feeders[name] if feeder in view.nodes
    ]
    return max((at for at in times if at < IDLE_TIME), default=min(times, default=MIN_TIME))


def _is_read_source(name: str, kind: NodeKind, view: ClusterView) -> bool:
    return kind is NodeKind.SOURCE and name in view.nodes


def _lag(front_us: int, watermark_us: int) -> str:
    if front_us == MAX_TIME:
        return "done" if watermark_us == MAX_TIME else "finishing"
    if front_us == IDLE_TIME:
        return "idle"
    if watermark_us == MIN_TIME:
        return "?"
    behind_us = max(0, front_us - watermark_us)
    return (
        duration_text(behind_us - behind_us % SECOND)
        if behind_us >= SECOND
        else f"{behind_us / SECOND:.1f}s"
    )


class ProgressLine:
    """Shows the newest text; use as a context manager. Sentences printed meanwhile stay above the
    line."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._live = (
            Live(console=console, auto_refresh=False, transient=True)
            if console.is_terminal
            else None
        )
        self._plain_due_s = 0.0

    def __enter__(self) -> ProgressLine:
        if self._live is not None:
            self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._live is not None:
            self._live.stop()

    def show(self, text: str, now_s: float) -> None:
        """Replace the line, or print it when it is time for another one."""
        if self._live is not None:
            self._live.update(Text(text, overflow="ellipsis", no_wrap=True), refresh=True)
        elif now_s >= self._plain_due_s:
            self._plain_due_s = now_s + _PLAIN_INTERVAL_S
            self.announce(text)

    @contextmanager
    def hidden(self) -> Iterator[None]:
        """Hide the line while other code prints to the terminal."""
        if self._live is None:
            yield
            return
        self._live.stop()
        try:
            yield
        finally:
            self._live.start()

    def announce(self, sentence: str) -> None:
        """Print a sentence that stays."""
        self._console.print(sentence, markup=False, highlight=False, soft_wrap=True)
