"""``python -m bench S``: all groupings in one simulated operator, as tables, and as the pictures of
docs/papers.md.

The set-ups are those of the paper on time-aware grouping and those around it: Zipf exponents of 0.8
to 2.0, 2 to 12 instances of equal and of unequal speed, other hot keys at half time, and an
instance that is four times slower from half time on. Everything is simulated, so it does not matter
what else the machine does. It prints; with ``--write`` it also draws the pictures.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from dataclasses import replace

from bench.grouping import CONTESTANTS, WAITING, Setup, run, speeds_of
from bench.panels import Line, Scale, panels
from bench.paths import HOUSE
from bench.skew_figures import (
    FIGURES,
    HEAVY,
    LIGHT,
    SHAPES,
    ahead,
    by_parallelism,
    figures,
    over_time,
)

PICTURE = HOUSE / "docs" / "pictures" / "skew_load.svg"
EXPONENTS = (0.8, 1.1, 1.4, 1.7, 2.0)
_DRAWN = ("hash", "dag", "nag", "tag")
_COLORS = {1.0: "#1f6f8b", 2.0: "#e09f3e", 4.0: "#9e2a2b"}
_MOST_LOAD = 3.0


def at_twelve(shape: str, records: int) -> str:
    """All metrics at 12 instances and an exponent of 1.4."""
    setup = Setup(speeds_of(shape, 12), records=records)
    head = (
        "| grouping | records/s | latency at 40 %, ms | at 80 %, ms | imbalance of busy times "
        "| copies of a key: mean, most |"
    )
    lines = [head, "|---" * 6 + "|"]
    for name in CONTESTANTS:
        full = run(name, setup)
        light, heavy = (
            run(name, replace(setup, load=load)).steady_latency_us / 1000 for load in (LIGHT, HEAVY)
        )
        cells = [
            f"{full.steady_per_s:,.0f}",
            f"{light:,.1f}",
            f"{heavy:,.1f}",
            f"{full.imbalance:.2f}",
        ]
        cells.append(f"{full.replicas:.2f}, {full.most_replicas}")
        lines.append(f"| `{name}` | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def by_exponent(shape: str, records: int) -> str:
    """The rate at each exponent, as a share of what 12 instances can do; and the imbalance in
    brackets."""
    lines = [
        "| grouping | " + " | ".join(f"Zipf {each}" for each in EXPONENTS) + " |",
        "|---" * 6 + "|",
    ]
    for name in CONTESTANTS:
        outcomes = [(setup, run(name, setup)) for setup in _exponents(shape, records)]
        cells = [
            f"{found.steady_per_s / setup.rate_per_us / 1e6:.0%} ({found.imbalance:.2f})"
            for setup, found in outcomes
        ]
        lines.append(f"| `{name}` | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def _exponents(shape: str, records: int) -> list[Setup]:
    return [Setup(speeds_of(shape, 12), exponent, records=records) for exponent in EXPONENTS]


def reactions(records: int) -> str:
    """How soon the latency is back after a change at half time, at 60 % of what 12 equal instances
    can do."""
    calm = Setup((1.0,) * 12, 1.1, load=0.6, records=records)
    lines = ["| grouping | other keys are hot | an instance is 4 times slower |", "|---|---|---|"]
    for name in CONTESTANTS:
        found = [
            run(name, setup).reaction(12)
            for setup in (replace(calm, drift=True), replace(calm, slowed=5))
        ]
        cells = [
            "never"
            if each is None
            else "at once"
            if each == 0
            else "1 window"
            if each == 1
            else f"{each} windows"
            for each in found
        ]
        lines.append(f"| `{name}` | {cells[0]} | {cells[1]} |")
    return "\n".join(lines)


def verdict(records: int) -> str:
    """TAG beside DAG and NAG at 12 unequal instances, over all exponents."""
    lines = ["| | " + " | ".join(f"Zipf {each}" for each in EXPONENTS) + " |", "|---" * 6 + "|"]
    setups = _exponents("unequal", records)
    rates = {
        name: [run(name, setup).steady_per_s for setup in setups]
        for name in ("tag", "dag", WAITING)
    }
    lines.append(
        _ratios("rate of `tag`, times that of `dag` (at least 1.10)", rates["tag"], rates["dag"])
    )
    lines.append(_ratios("the same with ack minus send", rates[WAITING], rates["dag"]))
    for load in (LIGHT, HEAVY):
        tag, nag = (
            [run(n, replace(s, load=load)).steady_latency_us for s in setups]
            for n in ("tag", "nag")
        )
        lines.append(
            _ratios(
                f"latency of `tag`, times that of `nag`, at {load:.0%} (at most 0.67)", tag, nag
            )
        )
    return "\n".join(lines)


def _ratios(title: str, one: Sequence[float], other: Sequence[float]) -> str:
    return (
        f"| {title} | " + " | ".join(f"{a / b:.2f}" for a, b in zip(one, other, strict=True)) + " |"
    )


def picture(records: int) -> str:
    """The load of each instance in each window, over the mean of the window; an instance is slowed
    at half time."""
    setup = Setup(speeds_of("unequal", 12), records=records, slowed=11)
    charts = {name: _lines(run(name, setup).loads, setup) for name in _DRAWN}
    legend = {f"speed {speed:g}": color for speed, color in _COLORS.items()} | {
        "dotted: slowed at half time": ""
    }
    scale = Scale(_MOST_LOAD, 1, f"window {len(next(iter(charts.values()))[0].values)}")
    return panels(
        "Load of each of 12 instances over time",
        charts,
        scale,
        {**legend, "dotted: slowed at half time": ""},
    )


def _lines(loads: Sequence[Sequence[float]], setup: Setup) -> list[Line]:
    return [
        Line(
            [each[instance] / (sum(each) / len(each)) for each in loads],
            _COLORS[speed],
            instance == setup.slowed,
        )
        for instance, speed in enumerate(setup.speeds)
    ]


def main() -> int:
    """Print all tables; with ``--write`` also draw the pictures of docs/papers.md."""
    parser = argparse.ArgumentParser(prog="python -m bench S", description=__doc__)
    parser.add_argument("--records", type=int, default=72_000, help="records of each run")
    parser.add_argument("--write", action="store_true", help="the pictures of docs/papers.md")
    arguments = parser.parse_args()
    for name, table in _tables(arguments.records):
        print(f"{name}\n{table}\n", flush=True)
    if arguments.write:
        PICTURE.write_text(picture(arguments.records), encoding="utf-8")
        FIGURES.write_text(figures(arguments.records), encoding="utf-8")
    return 0


def _tables(records: int) -> Iterator[tuple[str, str]]:
    """Each with its name, as soon as it is made."""
    yield "verdict", verdict(records)
    for shape in SHAPES:
        yield f"ahead-{shape}", ahead(shape, records)
        yield from (
            (f"{name}-{shape}", table) for name, table in by_parallelism(shape, records).items()
        )
        yield from ((f"{name}-{shape}", table) for name, table in over_time(shape, records).items())
    yield "unequal", at_twelve("unequal", records)
    yield "equal", at_twelve("equal", records)
    yield "exponents", by_exponent("unequal", records)
    yield "exponents-equal", by_exponent("equal", records)
    yield "reactions", reactions(records)
