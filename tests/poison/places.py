"""The places where a pipeline takes a value: a computation, a stream, and which field of a record
is the poison."""

from __future__ import annotations

import ast
import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from millwheel.core.expressions.functions import FUNCTIONS
from millwheel.core.expressions.language import compile_expression

Slot = Literal["v", "k", "t", "id", "a0", "object", "raises"]
ANY = ("1", "2", "3")
OF_TYPE = {
    "int": ANY,
    "float": ("1.5", "2.5", "3.5"),
    "str": ('"a"', '"b"', '"c"'),
    "bool": ("true", "false", "true"),
    "decimal(12, 2)": ("1.50", "2", '"3.25"'),
}
"""Usual values of each declared type, as JSON."""


@dataclass(frozen=True, slots=True)
class Place:
    """One place. ``computation`` and ``stream`` are YAML; ``slot`` is the field that is poisoned,
    and ``usual`` are its values (JSON) in the other records. ``columns``: production reads it in
    columns, so the sweep compares with rows, too."""

    name: str
    family: str
    computation: str
    stream: str = ""
    slot: Slot = "v"
    usual: tuple[str, ...] = ANY
    columns: bool = False
    format: Literal["jsonl", "csv"] = "jsonl"
    drops: bool = False
    """Whether a record may be left out because of its value."""
    changes: bool = False
    """Whether the results are a change log, whose rows are compared folded."""
    sink: str = ""
    """The sink of the results, as YAML, where it is what the poison goes into."""


def keyed(body: str, key: str = "k") -> str:
    """A computation of the events by a key, whose output is the results."""
    return f"input: {{events: {{key: {key}}}}}\n {body}\n output: results"


def windowed(aggregate: str, window: str = "{tumbling: 1m}", key: str = "k") -> str:
    """An aggregation of a window."""
    return keyed(f"window: {window}\n aggregate: {{n: count, a: {aggregate}}}", key)


def declared(**fields: str) -> str:
    """Declared fields of a stream."""
    return (
        "fields: {k: str, t: int,"
        f" {', '.join(f'{name}: {json.dumps(kind)}' for name, kind in fields.items())}}}"
    )


def in_columns(name: str, family: str, computation: str, kind: str = "float") -> Place:
    """A place whose ``v`` is declared, so that it is read into columns."""
    return Place(
        name, family, computation, declared(n="int", v=kind), usual=OF_TYPE[kind], columns=True
    )


def source_fields() -> Iterator[Place]:
    """Declared types, a class, and nothing declared, in JSON and CSV."""
    uses = {
        "int": "{sum: v}",
        "float": "{sum: v}",
        "str": "{count_distinct: v}",
        "bool": "{count: {where: v}}",
        "decimal(12, 2)": "{sum: v}",
    }
    for kind, use in uses.items():
        yield in_columns(f"jsonl field of {kind}", "field", windowed(use), kind)
        usual = OF_TYPE[kind]
        yield Place(
            f"csv field of {kind}",
            "field",
            windowed(use),
            declared(v=kind),
            "v",
            usual,
            True,
            "csv",
        )
    yield Place(
        "csv field",
        "field",
        windowed("{count_distinct: v}"),
        "fields: {k: str, t: int}",
        format="csv",
    )
    yield Place(
        "field of a class", "field", windowed("{sum: v}"), "schema: 'tests.poison.usercode:Event'"
    )
    yield Place("field that nobody reads", "field", windowed("count"), usual=OF_TYPE["str"])
    beside = "fields: {k: str, t: int, n: 'decimal(9, 2)'}"
    yield Place("field beside a decimal", "field", windowed("{sum: n}"), beside)
    yield Place(
        "field a0",
        "field",
        windowed("{max: a0}"),
        declared(a0="float"),
        "a0",
        OF_TYPE["float"],
        True,
    )


def keys() -> Iterator[Place]:
    """Keys of one field, of several, of a function, and of a declared type."""
    usual = ('"g0"', '"g1"', '"g2"')
    sums = windowed("{sum: n}")
    yield Place("key", "key", sums, slot="k", usual=usual)
    yield Place(
        "key of two fields", "key", windowed("{sum: n}", key="[k, id]"), slot="k", usual=usual
    )
    yield Place("key in columns", "key", sums, declared(n="int"), "k", usual, True)
    yield Place(
        "key of int", "key", sums, "fields: {k: int, t: int, n: int}", "k", ("0", "1", "2"), True
    )
    for text, values in (
        ("v + 1", ANY),
        ("trunc(v, '1h')", ANY),
        ("part(v, 'x', 0)", OF_TYPE["str"]),
    ):
        computed = windowed("{sum: n}", key=f'{{k: k, x: "{text}"}}')
        yield Place(f"key of {text}", "key", computed, usual=values)
    grouped = keyed("window: {tumbling: 1m}\n aggregate: {a: {sum: n}}", "k, null_key: group")
    yield Place("key with a group of nulls", "key", grouped, slot="k", usual=usual)
    yield Place("key of all", "key", windowed("{count_distinct: v}", key="all"), drops=True)
    function = windowed("{sum: n}", key='"tests.poison.usercode:key"')
    yield Place("key by a function", "key", function, slot="object")
    yield Place("key by a function that raises", "key", function, slot="raises")
    callback = keyed("callback: tests.poison.usercode:Calls\n options: {call: none}")
    yield Place("key of a callback", "key", callback, slot="k", usual=usual)


def times() -> Iterator[Place]:
    """Timestamps of each unit, by a function, and of windows in a time zone."""
    sums = windowed("{sum: n}")
    micros = [1_767_258_000_000_000 + n * 1_000_000 for n in range(3)]
    for unit, divisor in (("us", 1), ("ms", 1_000), ("s", 1_000_000)):
        usual = tuple(str(each // divisor) for each in micros)
        stamp = f"timestamp: {{field: t, unit: {unit}}}"
        yield Place(f"timestamp in {unit}", "time", sums, stamp, "t", usual)
        fields = f"{stamp}\n    {declared(n='int')}"
        yield Place(f"timestamp in {unit} in columns", "time", sums, fields, "t", usual, True)
    usual = tuple(map(str, micros))
    days = windowed("{sum: n}", "{tumbling: 1d, time_zone: America/New_York}")
    yield Place("timestamp in a time zone", "time", days, declared(n="int"), "t", usual, True)
    text = "timestamp: {field: t, unit: us}\n    fields: {k: str, n: int}"
    yield Place("timestamp in csv", "time", sums, text, "t", usual, format="csv")
    function = "timestamp: tests.poison.usercode:time"
    yield Place("timestamp by a function", "time", sums, function, "object")
    yield Place("timestamp by a function that raises", "time", sums, function, "raises")


def ids() -> Iterator[Place]:
    """External ids."""
    usual = tuple(f'"i{n}"' for n in range(3))
    yield Place("id", "id", windowed("{sum: n}"), "id: id", "id", usual)
    fields = f"id: id\n    {declared(n='int', id='str')}"
    yield Place("id in columns", "id", windowed("{sum: n}"), fields, "id", usual, True)


EXPRESSIONS = {
    "number": (
        *("v + 1", "v * 1e308", "1 / v", "7 // v", "7 % v", "v ** 2", "v ** v", "-v", "not v"),
        *("v and n", "v == 1", "v < 2", "v in ('a', 'b')", "v is None", "n if v else 0"),
        *("round(v, 2)", "max(v, n)", "has(v)", "get(v, 0)"),
    ),
    "text": ("'a' in v", "v[1:]"),
    "list": ("v[0]",),
    "map": ("v.a",),
}
_USUAL = {
    "number": ANY,
    "text": OF_TYPE["str"],
    "list": ("[1]", "[2]"),
    "map": ('{"a": 1}', '{"a": 2}'),
}


def expressions() -> Iterator[Place]:
    """Each operator in a step; a sample of them in conditions and aggregates of
    columns."""
    for kind, texts in EXPRESSIONS.items():
        for text in texts:
            step = keyed(f'map: {{k: k, p: "get(p, null)", r: "{text}"}}')
            yield Place(f"map {text}", "expression", step, usual=_USUAL[kind])
    for text in ("v", "v / n", "v * 1e300", "v % 2", "v // n"):
        for kind in ("int", "float"):
            condition = windowed(f'{{sum: n, where: "{text} > 1"}}')
            yield in_columns(f"where {text} of {kind}", "expression", condition, kind)
            yield in_columns(
                f"sum of {text} of {kind}", "expression", windowed(f'{{sum: "{text}"}}'), kind
            )
    yield Place("filter", "expression", keyed('filter: "v > 0"'), drops=True)
    branches = 'input: {events: {key: k}}\n branch: {results: "v > 0"}'
    yield Place("branch", "expression", branches, drops=True)


def functions() -> Iterator[Place]:
    """Each function with a value in place of the first argument of its example, and of the last
    one; over a declared field too, so that columns compute it."""
    for name, function in FUNCTIONS.items():
        call = ast.parse(function.examples[0][0], mode="eval").body
        assert isinstance(call, ast.Call)
        for place in dict.fromkeys((0, len(call.args) - 1)):
            args = [ast.unparse(each) for each in call.args]
            value = compile_expression(args[place]).evaluate({})
            args[place] = "v"
            text = f"{name}({', '.join(args)})"
            fields = f'{{k: k, p: "get(p, null)", r: {json.dumps(text)}}}'
            step = f"input: events\n map: {fields}\n output: results"
            usual = (json.dumps(value),)
            yield Place(f"map {text}", "function", step, usual=usual)
            kind = type(value).__name__
            if place == 0 and kind in OF_TYPE and function.columns is not None:
                both = declared(p="str", v=kind)
                yield Place(f"map {text} of {kind}", "function", step, both, "v", usual, True)


ROWS = ("{max_by: v}", "{min_by: v}", "first_row", "last_row", "{top_rows: [v desc, t], k: 2}")
AGGREGATES = (
    *(
        "count: v",
        "sum: v",
        "mean: v",
        "variance: v",
        "stddev: v",
        "min: v",
        "max: v",
        "first: v",
        "last: v",
    ),
    *(
        "top_k: v, k: 2",
        "collect: v",
        "count_distinct: v",
        "approx_count_distinct: v",
        "quantile: v, q: 0.5",
    ),
    "quantiles: v, q: [0.5, 0.9]",
)
WINDOWS = (
    *(
        "{tumbling: 1m}",
        "{sliding: 1m, every: 20s}",
        "{sliding: 1m, every: 20s, emit: changes}",
        "{session: 10s}",
    ),
    *("{count: 2}", "global", "{cumulative: 1h, every: 1m}"),
)


def aggregates() -> Iterator[Place]:
    """Every function in a window of a minute, of declared and undeclared fields; a few of them in
    all windows."""
    for text in AGGREGATES:
        use = windowed(f"{{{text}}}")
        yield Place(text, "aggregate", use)
        for kind in ("int", "float"):
            yield in_columns(f"{text} of {kind}", "aggregate", use, kind)
    for text in ("min: v", "count_distinct: v"):
        yield in_columns(f"{text} of str", "aggregate", windowed(f"{{{text}}}"), "str")
    for window in WINDOWS:
        for text in ("sum: v", "quantile: v, q: 0.5", "top_k: v, k: 2"):
            yield in_columns(f"{text} in {window}", "aggregate", windowed(f"{{{text}}}", window))
    early = " trigger: {after_watermark: {early: {after_count: 1}}}\n accumulation: accumulating"
    yield in_columns("sum: v with a trigger", "aggregate", windowed("{sum: v}") + "\n" + early)
    yield in_columns("sum: v scattered", "aggregate", windowed("{sum: v}") + "\n skew: scatter(2)")
    yield Place("a list of the records", "aggregate", keyed("window: {tumbling: 1m}"))
    for text in ROWS:
        yield Place(f"{text} of records", "aggregate", windowed(text))


FIRST = """input: {{events: {{key: k}}}}
 window: {{tumbling: 1m}}
 aggregate: {{n: count, low: {{min: v, where: "n >= 0"}}, dev: {{stddev: v}}, high: {{max: v,
   where: "v > 1"}}}}
 output: first
second:
 input: {{first: {{key: k}}}}
 window: {{tumbling: 1h}}
 aggregate: {{n: count, a: {{{use}}}}}
 output: results"""
BEHIND = """input: events
 map: {{k: k, n: n, v: v}}
 output: first
second:
 input: {{first: {{key: k}}}}
 {use}
 output: results"""
NUMBERED = """input: events
 dictionary: {of: v, as: number, partitions: 16}
 output: numbered
second:
 input: numbered
 map: {k: k, v: v}
 output: results"""


def relational() -> Iterator[Place]:
    """Second stages over results that may be null, joins, copies, numbers, order."""
    for use in (
        "sum: {}",
        "min: {}",
        "count: {}",
        "count_distinct: {}",
        "mean: {}",
        "quantile: {}, q: 0.5",
    ):
        for name in ("low", "dev", "high"):
            second = use.format(name)
            yield in_columns(f"{second} of a first stage", "relational", FIRST.format(use=second))
    both = "input: {events: {key: k}, others: {key: k}}\n"
    yield Place(
        "join", "relational", f"{both} window: {{tumbling: 1m}}\n join: left\n output: results"
    )
    yield Place(
        "enrich", "relational", f"{both} enrich: {{with: others, as: other}}\n output: results"
    )
    yield Place("deduplicate by", "relational", keyed("deduplicate: {by: [v], within: 1m}"))
    yield Place("deduplicate", "relational", keyed("deduplicate: {within: 1m}"))
    yield Place("dictionary", "relational", NUMBERED, usual=OF_TYPE["str"])
    yield from _joins()
    ordered = keyed(
        "callback: tests.poison.usercode:Calls\n options: {call: none}\n order_by: timestamp"
    )
    yield Place("order by time", "relational", ordered)


def _joins() -> Iterator[Place]:
    """Joins without a window, also by the value, and within an interval that the value bounds."""
    for key in ("k", "v"):
        both = f"input: {{events: {{key: {key}}}, others: {{key: {'k' if key == 'k' else 'o'}}}}}\n"
        for kind in ("inner", "left", "outer", "semi", "anti"):
            join = f"{both} join: {kind}\n output: results"
            drops = kind in {"inner", "semi"}
            yield Place(f"{kind} join of {key}", "join", join, drops=drops, changes=True)
        within = f"{both} join: {{kind: left, within: {{before: 5s, after: 5s}}}}\n output: results"
        yield Place(f"join within an interval of {key}", "join", within)
    both = "input: {events: {key: k}, others: {key: k}}"
    until = f"{both}\n join: {{kind: left, within: {{until: events.v}}}}\n output: results"
    yield Place("join until a time", "join", until, usual=_TIMES)
    three = f"{both[:-1]}, thirds: {{key: k}}}}\n join: left"
    yield Place("join of three", "join", f"{three}\n output: results", changes=True)
    enrich = "input: {events: {key: v}, others: {key: o}}\n enrich: {with: others, as: other}"
    yield Place("enrich by the value", "join", f"{enrich}\n output: results")


RANKED = {
    "top of one order": "top: {by: [v desc], k: 2}",
    "top with places": "top: {by: [v, t desc], k: 2, rank: place}",
    "top with nulls": "top: {by: [v desc nulls last], k: 2}",
    "top of an expression": 'top: {by: ["v * 2"], k: 2}',
    "keep the first": "deduplicate: {keep: first}",
    "keep the last": "deduplicate: {keep: last}",
}
LOOK_BACKS = ("{rows: 2}", "{range: 5s}", "{rows: all}")
CHANGE_LOGS = {
    "change log": "aggregate: {n: count, a: {sum: v}}",
    "change log of the least": "aggregate: {a: {min: v}}",
    "change log of different values": "aggregate: {a: {count_distinct: v}}",
    "change log of a row": "aggregate: {a: {max_by: v}}",
    "change log each second": "aggregate: {n: count, a: {sum: v}}\n trigger: {every: 1s}",
    "results of results": "aggregate: {n: count, a: {sum: v}}\n then: {m: 1 / a, q: m ** a}",
    "having": "aggregate: {n: count, a: {sum: v}}\n having: a > 2",
}


def tables() -> Iterator[Place]:
    """Rows in order, change logs, and streams that are tables."""
    for name, body in RANKED.items():
        yield Place(name, "table", keyed(body), changes=True)
    for span in LOOK_BACKS:
        for text in ("{sum: v}", "{min: v}"):
            over = keyed(f"over: {span}\n aggregate: {{a: {text}}}")
            yield Place(f"{text} over {span}", "table", over)
    for text in ("{sum: v}", "{min: v}"):
        use = f"over: {{rows: 2}}\n aggregate: {{a: {text}}}"
        yield in_columns(f"{text} over rows behind steps", "table", BEHIND.format(use=use))
    for name, body in CHANGE_LOGS.items():
        drops = name == "having"
        yield Place(name, "table", keyed(body), drops=drops, changes=True)
        if "max_by" not in body:
            fields = declared(v="int")
            yield Place(
                f"{name} of int",
                "table",
                keyed(body),
                fields,
                "v",
                ANY,
                True,
                drops=drops,
                changes=True,
            )
    rows = keyed("aggregate: {n: count, a: {max_by: n}}")
    for name, table in (("key", "{key: v}"), ("delete", '{key: id, delete: "v > 1"}')):
        yield Place(
            f"{name} of a table", "table", rows, f"table: {table}", drops=True, changes=True
        )


_TIMES = tuple(str(1_767_258_005_000_000 + n * 1_000_000) for n in range(3))
CALLS = (
    *(
        "produce",
        "produce bare",
        "produce key",
        "produce time",
        "produce stream",
        "count",
        "count name",
        "timer tag",
    ),
    *(
        "timer time",
        "timer domain",
        "cancel timer",
        "anything",
        "number",
        "floating",
        "text",
        "plain",
        "packed",
    ),
    *("list_of_any", "list_of_int", "map_of_any", "map_of_int", "map key", "map look"),
)


def calls() -> Iterator[Place]:
    """Each call of the context and of state, with every object."""
    for call in CALLS:
        callback = keyed(f"callback: tests.poison.usercode:Calls\n options: {{call: {call}}}")
        yield Place(call, "call", callback, slot="object")
    twice = keyed("callback: tests.poison.usercode:Twice")
    yield Place("state, seen by the next record", "call", twice, slot="object")


USERCODE = {
    "map": "map: tests.poison.usercode:mapped",
    "map to a bare value": "map: tests.poison.usercode:bare",
    "flat_map": "flat_map: tests.poison.usercode:several",
    "filter": "filter: tests.poison.usercode:passes",
    "a record in place": "callback: tests.poison.usercode:Changing",
    "a batch": "callback: tests.poison.usercode:Batches",
    "a timer": "callback: tests.poison.usercode:AtTimer",
    "a window": "window: {tumbling: 1m}\n callback: tests.poison.usercode:OfWindow",
}


def user_code() -> Iterator[Place]:
    """What user code returns, and each exception that it raises, wherever it is called."""
    slots: tuple[Slot, ...] = ("object", "raises")
    for slot in slots:
        doing = "returned by" if slot == "object" else "raised by"
        for name, body in USERCODE.items():
            yield Place(f"{doing} {name}", "code", keyed(body), slot=slot)
        for at in ("add", "result"):
            own = (
                f'{{"tests.poison.usercode:Failing": "get({slot}, null)", at: {at}, slot: {slot}}}'
            )
            body = f"window: {{tumbling: 1m}}\n aggregate: {{a: {own}}}"
            yield Place(f"{doing} {at} of an aggregator", "code", keyed(body), slot=slot)


SINKS = {
    "files of jsonl": "{files: {path: out, format: jsonl}}",
    "files of csv": "{files: {path: out, format: csv}}",
    "files of csv with fields": "{files: {path: out, format: csv, fields: {p: str, v: str}}}",
    "files of parquet": "{files: {path: out, format: parquet}}",
    "files of parquet with an int": (
        "{files: {path: out, format: parquet, fields: {p: str, v: int}}}"
    ),
    "files of parquet with a float": (
        "{files: {path: out, format: parquet, fields: {p: str, v: float}}}"
    ),
    "files of parquet with a text": (
        "{files: {path: out, format: parquet, fields: {p: str, v: str}}}"
    ),
    "files by a value": "{files: {path: out, format: jsonl, partition_by: [v]}}",
    "files that are replaced": "{files: {path: out, format: jsonl, mode: upsert, by: [p, v]}}",
}


def sinks() -> Iterator[Place]:
    """Rows with the value in a field, into each sink that needs no server."""
    rows = keyed('map: {p: "get(p, k)", v: v}')
    for name, sink in SINKS.items():
        yield Place(
            name, "sink", rows, usual=OF_TYPE["str" if "text" in name else "int"], sink=sink
        )


def places() -> list[Place]:
    """All of them; names are unique."""
    families = (
        source_fields,
        keys,
        times,
        ids,
        expressions,
        functions,
        aggregates,
        relational,
        tables,
        calls,
        user_code,
        sinks,
    )
    return [place for family in families for place in family()]
