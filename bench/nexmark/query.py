"""A query of Nexmark: a pipeline without Python, and the text for DuckDB that judges it."""

from __future__ import annotations

from dataclasses import dataclass

FIELDS = {
    "bid": "auction: int, bidder: int, price: int, channel: str, url: str, dateTime: int, extra:"
    " str",
    "auction": "id: int, itemName: str, description: str, initialBid: int, reserve: int, dateTime:"
    " int, expires: int, seller: int, category: int, extra: str",
    "person": "id: int, name: str, emailAddress: str, creditCard: str, city: str, state: str,"
    " dateTime: int, extra: str",
}
"""The fields of each kind of event; times are in ms."""

_STREAM = """  {kind}s:
    source: {{files: {{path: "${{input}}/{kind}-*.jsonl", format: jsonl}}}}
    timestamp: {time}
    fields: {{{fields}}}
"""
_OWN_TIME = "{field: dateTime, unit: ms}\n    watermark: {max_delay: 4s}"
_SIDE = """  sides:
    source: {files: {path: "${input}/side-*.jsonl", format: jsonl}}
    table: key
"""
_SINK = 'sinks: {{rows: {{files: {{path: "${{output}}", format: jsonl{options}}}}}}}'


@dataclass(frozen=True, slots=True)
class Query:
    """``computations`` produce the stream ``rows`` of the events of ``kinds``. ``sql`` are the
    rows that ``columns`` of them must be, over the tables bid, auction and person. ``key``: the
    rows of a change log, of which the last counts: that with most of the field ``newest``.
    ``marked``: each row brings or takes back one, and those that are left count. ``folders``: the
    fields by which rows are laid into folders. ``added``: the
    field whose values are added up, since nobody knows which windows the records of a key are in.
    ``arrival``: event time is the time at which a record is read."""

    title: str
    computations: str
    sql: str
    columns: tuple[str, ...]
    kinds: tuple[str, ...] = ("bid",)
    key: tuple[str, ...] = ()
    newest: str = ""
    marked: bool = False
    folders: tuple[str, ...] = ()
    added: str = ""
    arrival: bool = False

    @property
    def appends(self) -> bool:
        """Whether each row is final, whenever the records arrive."""
        return not (self.key or self.marked or self.added)

    def pipeline(self, name: str) -> str:
        """The file."""
        time = "arrival" if self.arrival else _OWN_TIME
        streams = "".join(_stream(kind, time) for kind in self.kinds)
        computations = "\n".join(f"  {line}" for line in self.computations.strip().splitlines())
        options = ", mode: changelog" if self.marked else ""
        options += f", partition_by: [{', '.join(self.folders)}]" if self.folders else ""
        sink = _SINK.format(options=options)
        return f"pipeline: {name}\nstreams:\n{streams}computations:\n{computations}\n{sink}\n"


def _stream(kind: str, time: str) -> str:
    if kind == "side":
        return _SIDE
    return _STREAM.format(kind=kind, fields=FIELDS[kind], time=time)
