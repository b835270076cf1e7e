"""Makes a failure short: the fewest faults and the least input with which it still happens, and of
what happened then only what concerns the shards and records in question."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from tests.sim.kernel import Event, Failure
from tests.sim.run import Case, simulate

_SIZES = (0.1, 0.25, 0.5)
_LINES = 60


def failure_of(case: Case) -> Failure | None:
    """How a case fails; None when it does not."""
    try:
        simulate(case)
    except Failure as ex:
        return ex
    return None


def shrunk(case: Case, failure: Failure, tries: int = 40) -> tuple[Case, Failure]:
    """A case that fails in the same way, with as little as can be found in ``tries`` runs."""
    kind = _kind(failure)
    for smaller in _smaller(case):
        if tries <= 0:
            break
        tries -= 1
        found = failure_of(smaller)
        if found is not None and _kind(found) == kind:
            return shrunk(smaller, found, tries)
    return case, failure


def _smaller(case: Case) -> Iterator[Case]:
    numbers = tuple(fault.number for fault in case.planned())
    if len(numbers) > 3:
        yield replace(case, keep=numbers[: len(numbers) // 2])
        yield replace(case, keep=numbers[len(numbers) // 2 :])
    if numbers:
        for left in reversed(numbers):
            yield replace(case, keep=tuple(number for number in numbers if number != left))
    for size in _SIZES:
        if size < case.size:
            yield replace(case, size=size)


def _kind(failure: Failure) -> str:
    """The promise that was broken."""
    return str(failure).partition(":")[0]


def concerning(story: Sequence[Event], about: Sequence[str]) -> list[Event]:
    """The events that concern one of ``about``, the workers that had to do with it, and the
    faults."""
    wanted = {name for name in about if name}
    owners = {
        name for event in story if event.about & wanted for name in event.about if name[:1] == "w"
    }
    general = ("fault", "the power", "a bit", "nothing passes", "ZooKeeper", "all faults")
    kept = [
        event
        for event in story
        if event.about & wanted
        or event.text.startswith(general)
        or (
            event.about & owners and not any("-" in name and name[0] != "w" for name in event.about)
        )
    ]
    if not wanted:
        kept = list(story)
    return kept[-_LINES:]


def tell(case: Case, failure: Failure) -> str:
    """What a person needs: the promise, the story, and the commands."""
    short, found = shrunk(case, failure)
    lines = [f"seed {case.seed}: {found}", *map(str, concerning(found.story, found.about))]
    lines += [f"replay: {short.command()} --trace"]
    if short != case:
        lines.append(f"the whole of it: {case.command()} --trace")
    return "\n".join(lines)
