"""Draws a case: two typed sources, aggregations over them, joins, and second stages over whatever
came out."""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace
from random import Random
from typing import Any

from millwheel.core.aggregates.functions import FUNCTIONS
from millwheel.core.instants.texts import iso_text
from tests.search.document import emit
from tests.search.forms import arrays, decimals, logs, look_backs, steps, tables, within
from tests.search.forms.values import NAMES, SECOND, START, TIMES, drawn, time
from tests.search.script import Action, Case, Clock, Finish, Push

_NOW = START + 10**6 * SECOND
_WINDOWS: tuple[dict[str, Any] | str, ...] = (
    {"tumbling": "10s"},
    {"tumbling": "1m", "offset": "3s"},
    {"tumbling": "1d", "time_zone": "America/New_York"},
    {"tumbling": "2d", "time_zone": "Asia/Kolkata"},
    {"sliding": "20s", "every": "10s"},
    {"sliding": "20s", "every": "5s", "emit": "changes"},
    {"cumulative": "1m", "every": "20s"},
    {"session": "4s"},
    {"count": 3},
    "global",
)
_NUMERIC = (
    "sum",
    "mean",
    "min",
    "max",
    "variance",
    "stddev",
    "quantile",
    "count_distinct",
    "approx_count_distinct",
)
_ANY = ("count", "min", "max", "count_distinct", "approx_count_distinct", "top_k")


_OF_TIMES = (
    "iso(AT)",
    "year(AT)",
    "trunc(AT, '1h')",
    "parse_time(iso(AT))",
    "AT + duration('1m')",
    "AT - parse_time('2023-11-14T22:13:20Z')",
    "date_format(AT, '%H:%M')",
    "AT >= '2023-11-14T22:14:00Z'",
)
_FIRST_US, _BEHIND_US = TIMES[0] + 86_400 * SECOND, TIMES[1] - 86_400 * SECOND
"""The times that texts express."""


@dataclass(slots=True)
class _Draft:
    rng: Random
    tree: dict[str, Any]
    fields: dict[str, dict[str, str]] = field(default_factory=dict)
    """The types of the fields of each stream that something may read: "" where it is not known."""
    keys: dict[str, list[str]] = field(default_factory=dict)
    versions: set[str] = field(default_factory=set)
    """The streams of change logs, and what steps make of them."""


def case(seed: int) -> Case:
    """The case of a seed."""
    rng = Random(f"forms {seed}")
    draft = _Draft(rng, {"pipeline": "p", "streams": {}, "computations": {}, "sinks": {}})
    declared = rng.random() < 0.85
    names = rng.sample(NAMES, 5)
    for stream in ("one", "two"):
        _source(draft, stream, names, declared)
    # drawn apart, so that all else is as it would be without them
    own = Random(f"steps {seed}")
    if rng.random() < 0.25 and declared:
        _join(draft)
    else:
        _aggregation(draft, "c0", _stepped(draft, own, "one", 0.6))
    if rng.random() < 0.8 and draft.fields.get("c0"):
        _aggregation(draft, "c1", _stepped(draft, own, "c0", 0.4))
    last = list(draft.tree["computations"])[-1]
    _stepped(draft, own, last, 0.4)
    for tree in draft.tree["computations"].values():
        for stream in tree.get("branch", [tree.get("output")]):
            mode = {"mode": "changelog"} if draft.versions else {}
            draft.tree["sinks"][stream] = {"stdout": mode}
    script = _script(rng, draft.fields, names)
    if _leaps(script, names[1]):
        for tree in draft.tree["computations"].values():
            tree.pop("ttl", None)
    features = frozenset({"forms"} | (set() if declared else {"undeclared"}))
    # drawn apart, too
    if not declared and (own := Random(f"alone {seed}")).random() < 0.5:
        within.passed_on(own, draft.tree, draft.fields["one"], names[0])
        script = [within.with_more(own, action) for action in script]
        features |= {"alone"}
    own = Random(f"times {seed}")
    if declared and own.random() < 0.3:
        script = _timed(draft, own, names[1], script)
        features |= {"times"}
    own = Random(f"decimals {seed}")
    if declared and own.random() < 0.25:
        script = decimals.priced(draft.tree, draft.fields["one"], own, script)
        features |= {"decimals"}
    # what lies in a record with a decimal is not said to be one
    if "join" in draft.tree["computations"]["c0"] and "decimals" not in features:
        within.steps_within(Random(f"within {seed}"), draft.tree, draft.fields)
        features |= {"within"}
    if "decimals" not in features and within.of_results(
        Random(f"results {seed}"), draft.tree, draft.fields
    ):
        features |= {"results"}
    own = Random(f"whole table {seed}")
    if declared and not features & {"times", "decimals"} and own.random() < 0.5:
        # The table is there first: the order of what has waited is that of the partitions.
        script = [*tables.enriched(own, draft.tree, draft.fields["one"], names), *script]
        features |= {"held"}
    if declared:
        _first_rows(draft, Random(f"first rows {seed}"))
    # what it takes in rows, all consumers of the source would: joins are to stay in columns
    free = declared and not features & {"times", "decimals", "within"}
    if free and steps.multiplied(Random(f"lists {seed}"), draft.tree, draft.fields):
        features |= {"lists"}
    own = Random(f"look-backs {seed}")
    if free and look_backs.looked_back(own, draft.tree, draft.fields["one"], draft.keys["one"]):
        script = [look_backs.tamed(own, action) for action in script]
        features |= {"over"}
    own = Random(f"logs {seed}")
    if free and logs.over_pairs(own, draft.tree, draft.fields, draft.keys["two"][0]):
        script = [logs.tamed(action) for action in script]
        features |= {"logs"}
    text = emit(draft.tree)
    if "times" in features:  # two times have no sum
        text = re.sub(rf"\b{names[1]} \+ {names[1]}\b", f"{names[1]} - {names[1]}", text)
    if Random(f"nulls {seed}").random() < 0.4:
        text = "nulls: sql\n" + text.replace("!= null", "is not null")
        features |= {"nulls of SQL"}
    if Random(f"arrays {seed}").random() < 0.5 and any(name in text for name in arrays.INSTEAD):
        for name, other in arrays.INSTEAD.items():
            text = text.replace(name, other)
        text = arrays.HEAD + text
        features |= {"arrays"}
    return Case(seed, text, tuple(script), False, _NOW, features)


def _source(draft: _Draft, stream: str, names: list[str], declared: bool) -> None:
    key, at, x, n, s = names
    kind = draft.rng.choice(["int", "str"])
    fields = {key: kind, at: "int", x: "float", n: "int", s: "str"}
    if stream == "two":
        fields = {key: draft.fields["one"][key], at: "int", n: "int"}
    options: dict[str, Any] = {"source": {"injection": {}}, "timestamp": at}
    options |= {"fields": fields} if declared else {}
    options["watermark"] = {
        "max_delay": draft.rng.choice(["0s", "5s"]),
        "idle_after": "never",
        "max_future": "never",
    }
    draft.tree["streams"][stream] = options
    draft.fields[stream] = fields
    draft.keys[stream] = [key] if draft.rng.random() < 0.7 or stream == "two" else [key, s]


def _join(draft: _Draft) -> None:
    [key] = draft.keys["two"]
    kind = draft.rng.choice(["inner", "left", "outer"])
    inputs = {stream: {"key": key} for stream in ("one", "two")}
    draft.tree["computations"]["c0"] = {
        "input": inputs,
        "join": kind,
        "window": {"tumbling": "10s"},
        "output": "c0",
    }
    fields = {key: draft.fields["one"][key], "one": "", "two": "", "window_end": "int"}
    draft.fields["c0"], draft.keys["c0"] = fields, [key]


def _aggregation(draft: _Draft, name: str, stream: str) -> None:
    rng, fields, key = draft.rng, draft.fields[stream], draft.keys[stream]
    window = rng.choice(_WINDOWS)
    taken = {"window_start", "window_end", *key}
    free = [given for given in rng.sample(NAMES, 8) if given not in taken]
    aggregates = {given: _aggregate(rng, fields) for given in free[: rng.randint(1, 4)]}
    _kept(aggregates, fields)
    tree: dict[str, Any] = {
        "input": {stream: {"key": key[0] if len(key) == 1 else key}},
        "window": window,
    }
    if rng.random() < 0.2 and (condition := _condition(rng, fields)):
        tree["where"] = condition
    if rng.random() < 0.2 and isinstance(window, dict) and window.keys() & {"tumbling"}:
        tree |= {"allowed_lateness": "20s", "accumulation": "accumulating"}
    own = Random(repr(("change log", tree, aggregates)))
    log = stream in draft.versions or (window == "global" and own.random() < 0.6)
    if log:
        draft.versions.add(name)
        for word in ("window", "allowed_lateness", "accumulation"):
            tree.pop(word, None)
        tree |= {"trigger": {"every": "7s"}} if own.random() < 0.2 else {}
        tree |= {"ttl": "1d"} if own.random() < 0.2 else {}
    draft.tree["computations"][name] = {**tree, "aggregate": aggregates, "output": name}
    kinds = {given: _result(made, fields) for given, made in aggregates.items()}
    bounds = {} if log else {"window_end": "int"}
    draft.fields[name] = {part: fields[part] for part in key} | kinds | bounds
    draft.keys[name] = key if rng.random() < 0.8 else key[:1]


def _kept(aggregates: dict[str, Any], fields: dict[str, str]) -> None:
    """An aggregate of whole records in place of one, sometimes; drawn apart."""
    rng = Random(repr(("whole records", aggregates)))
    orders = [name for name, kind in fields.items() if kind and name.isidentifier()]
    if rng.random() >= 0.4 or not orders:
        return
    function = rng.choice(["max_by", "min_by", *["first_row", "last_row", "top_rows"] * 2])
    by = rng.sample(orders, min(len(orders), rng.choice([1, 1, 2])))
    if function.endswith("row"):
        aggregates[rng.choice(sorted(aggregates))] = function
        return
    options: dict[str, Any] = {function: by}
    if function == "top_rows":
        ways = rng.choice([[""], [" desc"], [" desc nulls last", " nulls first"]])
        options[function] = [name + rng.choice(ways) for name in by]
        options["k"] = rng.choice([1, 2, 3])
        if rng.random() < 0.3:
            options["rank"] = "place"
    aggregates[rng.choice(sorted(aggregates))] = options


def _first_rows(draft: _Draft, rng: Random) -> None:
    """The first rows of each key of a source, or of what steps make of it, sometimes."""
    if rng.random() >= 0.35:
        return
    stream = rng.choice([name for name in ("one", "one_made") if name in draft.fields])
    fields, key = draft.fields[stream], draft.keys[stream][0]
    orders = [name for name, kind in fields.items() if kind and name.isidentifier()]
    tree: dict[str, Any] = {"input": {stream: {"key": key}}, "output": "best"}
    if rng.random() < 0.5 or not orders:
        tree["deduplicate"] = {"keep": rng.choice(["first", "last"])}
    else:
        by = rng.sample(orders, min(len(orders), rng.choice([1, 1, 2])))
        tree["top"] = {
            "by": [name + rng.choice([" desc", "", " nulls first"]) for name in by],
            "k": rng.choice([1, 2, 5]),
            **({"rank": "place"} if rng.random() < 0.3 else {}),
        }
    draft.tree["computations"]["best"] = tree
    draft.tree["sinks"]["best"] = {"stdout": {"mode": "changelog"}}


def _stepped(draft: _Draft, rng: Random, stream: str, share: float) -> str:
    """Steps over a stream, sometimes; then the stream that they make."""
    fields = {name: kind for name, kind in draft.fields[stream].items() if kind}
    if rng.random() >= share or not fields:
        return stream
    name = f"{stream}_made"
    tree: dict[str, Any] = {"input": stream}
    if rng.random() < 0.5:
        tree["input"] = {stream: {"key": draft.keys[stream][0]}}
    if rng.random() < 0.4:
        tree["filter"] = steps.test(rng, fields)
    projects = rng.random() < 0.85 or "filter" not in tree
    if projects:
        made = {key: (key, fields[key]) for key in draft.keys[stream] if key in fields}
        for given in rng.sample(NAMES, 4):
            if given not in made:
                made[given] = steps.value(rng, fields)
        tree["map"] = {given: text for given, (text, _) in made.items()}
        kinds = {given: kind for given, (_, kind) in made.items()}
    else:
        kinds = draft.fields[stream]
    draft.tree["computations"][name] = {**tree, "output": name}
    if rng.random() < 0.3:
        conditions = {f"{name}_{way}": steps.test(rng, kinds) for way in ("a", "b")}
        draft.tree["computations"][f"{name}_ways"] = {
            "input": name,
            "branch": {**conditions, f"{name}_c": "otherwise"},
            "match": rng.choice(["first", "all"]),
        }
    # an aggregate of truths is none of columns
    draft.fields[name] = {of: "" if kind == "bool" else kind for of, kind in kinds.items()}
    draft.keys[name] = draft.keys[stream]
    if stream in draft.versions:
        draft.versions.add(name)
    return name


def _aggregate(rng: Random, fields: dict[str, str]) -> Any:
    if rng.random() < 0.15:
        return "count"
    of = rng.choice(sorted(fields))
    numbers = [name for name, kind in fields.items() if kind in ("int", "float")]
    if fields[of] == "":
        function = "count"
    elif fields[of] in ("int", "float"):
        function = rng.choice(_NUMERIC)
        if rng.random() < 0.25:
            other = rng.choice(numbers)
            of = f"{of} {rng.choice('+-*/')} {rng.choice([other, '2', '0.5'])}"
    else:
        function = rng.choice(_ANY)
    made: dict[str, Any] = {function: of}
    if function == "quantile":
        made["q"] = rng.choice([0.0, 0.5, 1.0])
    if function == "top_k":
        made["k"] = 2
    if rng.random() < 0.4 and (condition := _condition(rng, fields)):
        made = {
            function: {"of": of, "where": condition},
            **{name: made[name] for name in made if name != function},
        }
    return made


def _condition(rng: Random, fields: dict[str, str]) -> str:
    known = [name for name, kind in sorted(fields.items()) if kind]
    if not known:
        return ""
    name = rng.choice(known)
    value = {
        "int": rng.choice(["0", "5", "9007199254740993"]),
        "float": rng.choice(["0.0", "1.5", "100"]),
    }
    operator = rng.choice([">", ">=", "<", "!="])
    return f"{name} {operator} {value.get(fields[name], repr('a'))}"


def _result(made: Any, fields: dict[str, str]) -> str:
    """The type of a result, as far as a second stage may make something of it."""
    if made == "count":
        return "int"
    function = made if isinstance(made, str) else next(iter(made))
    if FUNCTIONS[function].of_rows:
        return ""
    of = made[function]["of"] if isinstance(made[function], dict) else made[function]
    if function in ("count", "count_distinct", "approx_count_distinct"):
        return "int"
    if function == "top_k":
        return ""
    if function in ("min", "max", "sum"):
        return fields.get(of, "float")
    return "float"


def _script(rng: Random, fields: dict[str, dict[str, str]], names: list[str]) -> list[Action]:
    script: list[Action] = []
    after, nulls = 0, rng.choice([0.0, 0.0, 0.02, 0.2])
    at = names[1]
    for _ in range(rng.randint(2, 8)):
        stream = rng.choice(["one", "one", "two"])
        records = []
        for _ in range(rng.choice([1, 3, 10, 40])):
            after += rng.choice([0, 0, 0, 1, 2])
            record = {name: drawn(rng, kind, nulls) for name, kind in fields[stream].items()}
            record[names[0]] = (
                rng.choice([1, 2]) if fields[stream][names[0]] == "int" else rng.choice("ab")
            )
            if rng.random() < 0.03:
                record[names[0]] = drawn(rng, fields[stream][names[0]], nulls)
            records.append({**record, at: time(rng, after)})
        script.append(Push(stream, tuple(records), rng.choice(["pushed", "pushed", "other"])))
        if rng.random() < 0.3:
            after += rng.choice([5, 20, 60])
    return [*script, Clock(_NOW + 60 * SECOND), Finish()]


def _leaps(script: list[Action], at: str) -> bool:
    """Whether the watermark leaps far ahead. pipeline.md, Change logs: "A record more than `ttl`
    behind the watermark may find its group forgotten", so bundles have a say."""
    pushes = (action for action in script if isinstance(action, Push))
    return any(value[at] > 2 * START for push in pushes for value in push.values)


def _timed(draft: _Draft, rng: Random, at: str, script: list[Action]) -> list[Action]:
    """The timestamps as fields that are times, some of them written as texts, and one more field
    of what steps make."""
    for options in draft.tree["streams"].values():
        form = rng.choice(["timestamp", {"type": "timestamp", "unit": "us"}])
        options["fields"] = {**options["fields"], at: form}
    for tree in draft.tree["computations"].values():
        made = tree.get("map")
        if made is not None and ("one" in tree["input"] or "two" in tree["input"]):
            free = [name for name in NAMES if name not in made]
            made[rng.choice(free)] = rng.choice(_OF_TIMES).replace("AT", at)
    return [
        replace(action, values=tuple(_written(rng, each, at) for each in action.values))
        if isinstance(action, Push) and rng.random() < 0.7
        else action
        for action in script
    ]


def _written(rng: Random, record: Any, at: str) -> Any:
    """The record with its time as a text, where that can be."""
    if not _FIRST_US <= record[at] < _BEHIND_US or rng.random() < 0.02:
        return record
    text = iso_text(record[at], rng.choice([0, 0, 3_600 * SECOND, -12_600 * SECOND]))
    return {**record, at: text.replace("Z", rng.choice(["Z", "", "+00:00"]))}
