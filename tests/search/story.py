"""A failing case as a person reads it: the pipeline, what is pushed, and what differs."""

from __future__ import annotations

from tests.search.script import Action, Clock, Finish, Push, Watermark
from tests.search.variants import Finding, option_for


def tell(finding: Finding) -> str:
    """The whole story."""
    case = finding.case
    way = option_for(case.seed, finding.way)
    lines = [f"python -m tests.search --seed {case.seed}{way}", "", case.yaml.rstrip(), ""]
    if case.now is not None:
        lines.append(f"the clock shows {case.now}")
    if not case.stated:
        lines.append("watermarks follow max_delay and idle_after")
    lines += map(_line, case.script)
    lines += [
        "",
        f"{finding.way}",
        "differs from one record at a time (what that gives comes first):",
    ]
    return "\n".join([*lines, *(f"  {each}" for each in finding.differences[:6])])


def _line(action: Action) -> str:
    match action:
        case Push():
            index = "" if action.partition == "pushed" else f" ({action.partition})"
            return f"push {action.stream}{index}: " + ", ".join(map(str, action.values))
        case Watermark():
            where = "".join(f" {part}" for part in (action.stream, action.partition) if part)
            return f"watermark{where}: {action.t}"
        case Clock():
            return f"clock: {action.t}"
        case Finish():
            return f"finish {action.stream or ''}".rstrip()
