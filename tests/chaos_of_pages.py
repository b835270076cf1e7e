"""``python -m tests.chaos_of_pages --runs 20``: `millwheel chaos` over the pipelines of README,
tutorial and examples.

Exit codes: 0 no run differs, 1 some do."""

from __future__ import annotations

import argparse
import json
import random
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

REPO = Path(__file__).parents[1]
_NOTE = "x" * 1_000  # makes input large enough for faults to come while it is read
_BEGIN_US = 1_767_258_000_000_000


def _times(count: int, gap_us: int) -> list[int]:
    rng, at, found = random.Random(count), _BEGIN_US, []
    for _ in range(count):
        at += rng.randint(1, gap_us)
        found.append(at - rng.randint(0, 9_000_000))
    return found


def _lines(path: Path, make: Callable[[random.Random, int], dict[str, object]]) -> None:
    rng = random.Random(1)
    with path.open("w") as file:
        for at in _times(30_000, 30_000_000):
            file.write(json.dumps({**make(rng, at), "note": _NOTE}) + "\n")


def _visits(rng: random.Random, at: int) -> dict[str, object]:
    return {"user": f"u{rng.randrange(60)}", "page": f"/{rng.randrange(9)}", "time": at}


def _events(rng: random.Random, at: int) -> dict[str, object]:
    return {
        "user": f"u{rng.randrange(60)}",
        "what": "paid" if rng.random() < 0.1 else "add",
        "time": at,
    }


def _sales(rng: random.Random, at: int) -> dict[str, object]:
    return {"shop": f"s{rng.randrange(9)}", "price": f"{rng.randrange(900) / 100}", "time": at}


_INPUTS = {"visits.jsonl": _visits, "events.jsonl": _events, "sales.jsonl": _sales}
_PAGES = {
    "docs/tutorial/1-first-run.md": "pages.py",
    "docs/tutorial/2-state.md": "returning.py",
    "docs/tutorial/3-time.md": "minutes.py",
    "docs/tutorial/4-timers.md": "baskets.py",
    "docs/tutorial/5-bad-input.md": "prices.py",
}


def _of_page(page: str, name: str, folder: Path) -> list[str]:
    """The code of a page, with results of each run in a folder of its own."""
    text = (REPO / page).read_text(encoding="utf-8")
    found = re.search(rf"`{re.escape(name)}`[^`\n]*:\n\n```python\n(.*?)```", text, re.DOTALL)
    assert found is not None, f"{page} has no {name}"
    code = re.sub(r'FileSink\("', 'FileSink("${output}/', found[1]).replace(
        "count=6000", "count=20000"
    )
    (folder / name).write_text(code)
    for given, make in _INPUTS.items():
        if given in code:
            _lines(folder / given, make)
    return [name]


def _visits_of_the_readme(folder: Path) -> list[str]:
    text = (REPO / "README.md").read_text(encoding="utf-8")
    for name, code in re.findall(
        r"`(visits\.yaml|returning\.py)`[^`\n]*:\n\n```\w+\n(.*?)```", text, re.DOTALL
    ):
        (folder / name).write_text(code)
    _lines(folder / "visits.jsonl", _visits)
    return ["visits.yaml", "--set", "input=visits.jsonl"]


def _ads(folder: Path) -> list[str]:
    command = [
        sys.executable,
        str(REPO / "examples/ads/generate.py"),
        "--records",
        "200000",
        "--out",
        "ads.jsonl",
    ]
    subprocess.run(command, cwd=folder, check=True, capture_output=True)
    return [str(REPO / "examples/ads/pipeline.yaml"), "--set", f"input={folder}/ads.jsonl"]


def _example(name: str) -> Callable[[Path], list[str]]:
    return lambda folder: [str(REPO / f"examples/{name}/pipeline.yaml")]


CASES: dict[str, Callable[[Path], list[str]]] = {
    **{
        page: lambda folder, page=page, name=name: _of_page(page, name, folder)
        for page, name in _PAGES.items()
    },
    "README.md, visits.yaml": _visits_of_the_readme,
    "examples/ads": _ads,
    "examples/weblog": _example("weblog"),
    "examples/zeitgeist": _example("zeitgeist"),
}


def chaos(case: str, seed: int) -> int:
    """One case with the faults of one seed; the exit code of the command."""
    with tempfile.TemporaryDirectory() as made:
        folder = Path(made)
        argv = CASES[case](folder)
        command = [
            sys.executable,
            "-m",
            "millwheel",
            "chaos",
            *argv,
            "--set",
            f"output={folder}/out/{{run}}",
        ]
        command += ["--every", "2s", "--seed", str(seed), "--folder", f"{folder}/chaos"]
        done = subprocess.run(
            command, cwd=folder, capture_output=True, text=True, timeout=900, check=False
        )
    rows = [line for line in (done.stdout + done.stderr).splitlines() if " rows, " in line]
    print(
        f"{case}, seed {seed}: exit code {done.returncode};"
        f" {'; '.join(rows) or done.stderr[-500:]}",
        flush=True,
    )
    return done.returncode


def main() -> int:
    """All cases, or those that are named, so many times each."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=1)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("cases", nargs="*", default=list(CASES))
    given = parser.parse_args()
    codes = [
        chaos(case, given.seed + number) for number in range(given.runs) for case in given.cases
    ]
    return int(any(codes))


if __name__ == "__main__":
    sys.exit(main())
