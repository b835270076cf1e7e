"""The watermark service: runs tests/transcripts/machines/injector*.txt, reports in, watermarks out
(``--rewrite``: see tests/transcripts/README.md)."""

from __future__ import annotations

import pytest

from millwheel.control.injector.effects import Broadcast, Effect, Greet, Tallies, TokensConfirmed
from millwheel.control.injector.events import (
    Connected,
    Disconnected,
    Event,
    PublishDue,
    RangesChanged,
    ReportColumns,
    ReportsArrived,
)
from millwheel.control.injector.state import InjectorState, Latencies
from millwheel.core.model.names import NodeName, ShardName, Token, WorkerName
from millwheel.core.model.range_table import RangeTable, ShardEntry
from millwheel.core.model.ranges import SPACE, KeyRange
from millwheel.core.model.times import IDLE_TIME, MAX_TIME, MIN_TIME
from millwheel.core.model.watermark import ShardReport
from tests.transcripts.spoken import Story, check, rewrite, stories

_NAMES = {IDLE_TIME: "idle", MAX_TIME: "end", MIN_TIME: "-"}
_TIMES = {name: time for time, name in _NAMES.items()}


class Injector:
    """``table NODE SHARD/TOKEN:FIRST-LAST...`` in eighths of the key space, with a version if it is
    not the next one; ``report CONNECTION NODE SHARD/TOKEN=TIME...`` with ``~TIME`` for silence,
    ``@SHARE=TIME``, ``+COUNTER=TOTAL`` and ``(holder)`` behind it; ``publish``; ``connect`` and
    ``disconnect CONNECTION``; ``view NODE``."""

    def __init__(self) -> None:
        self._state = InjectorState()
        self._version = -1

    def do(self, command: str, words: list[str]) -> list[str]:
        if command == "view":
            return self._view(words[0])
        effects = self._state.handle(self._event(command, words))
        self._state.validate()
        return [_told(effect) for effect in effects]

    def _event(self, command: str, words: list[str]) -> Event:
        match command:
            case "table":
                return RangesChanged(self._table(words))
            case "report":
                reports = ReportColumns.of([_report(word) for word in words[2:]])
                return ReportsArrived(int(words[0]), NodeName(words[1]), reports)
            case "publish":
                return PublishDue()
            case "connect":
                return Connected(int(words[0]))
            case "disconnect":
                return Disconnected(int(words[0]))
        raise ValueError(f"{command} is not a command of the injector")

    def _table(self, words: list[str]) -> RangeTable:
        node, *shards = words
        self._version += 1
        version = self._version
        if shards[0].startswith("version="):
            version = int(shards.pop(0).removeprefix("version="))
        entries = []
        for shard in shards:
            name, _, edges = shard.partition(":")
            name, _, token = name.partition("/")
            low, high = (int(edge) * SPACE // 8 for edge in edges.split("-"))
            key_range = KeyRange(low, high)
            entries.append(
                ShardEntry(ShardName(name), key_range, WorkerName("w"), Token(int(token)))
            )
        return RangeTable(NodeName(node), tuple(entries), version)

    def _view(self, node: str) -> list[str]:
        view = next(view for view in self._state.view() if view.node == node)
        silent = f", silent {' '.join(view.silent_shards)}" if view.silent else ""
        counters = "".join(f", {name} {total}" for name, total in view.counters.items())
        refused = f", {view.stale_reports} stale" if view.stale_reports else ""
        refused += f", {view.lower_reports} lower" if view.lower_reports else ""
        held = f"{view.holder_shard} ({view.holder})"
        return [f"{_time(view.watermark_us)} by {held}{silent}{counters}{refused}"]


def _report(word: str) -> ShardReport:
    word, _, holder = word.rstrip(")").partition("(")
    word, *counters = word.split("+")
    word, *shares = word.split("@")
    word, _, silence = word.partition("~")
    shard, _, at = word.partition("=")
    name, _, token = shard.partition("/")
    totals = {name: int(total) for name, total in (each.split("=") for each in counters)}
    by_share = {float(share): _us(at) for share, at in (each.split("=") for each in shares)}
    return ShardReport(
        ShardName(name),
        Token(int(token)),
        _us(at),
        holder,
        totals,
        shares=by_share,
        idle_us=_us(silence) if silence else MIN_TIME,
    )


def _us(text: str) -> int:
    return _TIMES[text] if text in _TIMES else int(text)


def _time(us: int) -> str:
    return _NAMES.get(us, str(us))


def _told(effect: Effect) -> str:
    match effect:
        case Broadcast():
            return "all hear " + _marks(effect.watermarks)
        case Greet():
            return f"{effect.connection} hears {_marks(effect.watermarks) or 'nothing yet'}"
        case TokensConfirmed():
            known = " ".join(f"{shard}/{token}" for shard, token in effect.tokens.items())
            return f"{effect.connection} may ack under {known}"
        case Tallies():
            return f"{effect.connection or 'all'} hear tallies of {', '.join(effect.tallies)}"


def _marks(watermarks: object) -> str:
    assert isinstance(watermarks, dict)
    return " ".join(f"{node}={_time(us)}" for node, us in watermarks.items())


def test_rewrite(request: pytest.FixtureRequest) -> None:
    """First in the file, so that the transcripts below run as they were rewritten."""
    if not request.config.getoption("--rewrite"):
        pytest.skip("only with --rewrite")
    rewrite("injector", Injector)


@pytest.mark.parametrize("story", stories("injector"), ids=lambda story: story.title)
def test_transcript(story: Story) -> None:
    check(story, Injector())


def test_latency_quantiles_are_over_the_whole_pipeline() -> None:
    state, nothing = InjectorState(), ReportColumns.of([])
    assert state.latencies.quantiles_ms() == ()
    for samples in ([float(ms) for ms in range(1, 101)], [float("nan"), -1.0]):
        state.handle(ReportsArrived(1, NodeName("n"), nothing, samples))
    p50, p95, p99, largest = state.latencies.quantiles_ms()
    assert p50 == pytest.approx(50, rel=0.03)
    assert p95 == pytest.approx(95, rel=0.03)
    assert p99 == pytest.approx(99, rel=0.03)
    assert largest == 100.0


@pytest.mark.parametrize("sample", [614.8, 1815.1, 52076.7, 30.1, 0.0, 1e-9])
def test_no_quantile_of_latencies_lies_beyond_the_least_and_the_greatest(sample: float) -> None:
    latencies = Latencies()
    latencies.add([sample] * 10)
    assert latencies.quantiles_ms() == (sample,) * 4
