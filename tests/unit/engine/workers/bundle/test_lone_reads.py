"""Records of a source that end the workers that decode them: each is found, and passed over with
its raw text."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from millwheel.connect.sources.files import json_lines
from millwheel.core.pipeline.spec import DEAD_LETTERS
from millwheel.engine.workers.bundle.hangs import Avoided, Hang, noted_hangs
from millwheel.engine.workers.bundle.work_note import InProgress
from millwheel.engine.workers.host.assembly import Assembly
from millwheel.errors import InvariantError
from millwheel.tools.testing import PipelineHarness, pipeline_harness

LINES = 60
BAD = (7, 8, 41)


class DiedError(InvariantError):
    """Stands for the end of the process: nothing may catch it."""


class Notes:
    """What the owners of the source's shard have died of, and the note of the present one."""

    def __init__(self) -> None:
        self.now: InProgress | None = None
        self.deaths: dict[str, Hang] = {}

    def put(self, bundle: InProgress) -> Any:
        before, self.now = self.now, bundle
        return before

    def back(self, before: Any) -> None:
        self.now = before or None

    def died(self) -> None:
        """As who started the worker would note it."""
        now = self.now
        assert now is not None, "it is known what was in progress"
        parts = (now.node, now.shard, now.token, now.what, now.key, now.mark, "bad.py:7 in decode")
        self.deaths[f"{len(self.deaths)}"] = Hang(
            *parts, "", "was killed by SIGSEGV", now.records, now.lo, now.hi
        )
        self.now = None


@pytest.fixture
def notes(monkeypatch: pytest.MonkeyPatch) -> Notes:
    kept = Notes()

    class Noting(Assembly):
        def make_shard(self, name: Any, entry: Any, *given: Any) -> Any:
            shard = super().make_shard(name, entry, *given)
            if name.startswith("source."):
                known = noted_hangs(kept.deaths, entry, 1)
                lo, hi = f"{entry.range.lo:x}", f"{entry.range.hi:x}"
                avoided = Avoided(known.hangs, lone=known.lone, deaths=known.deaths)
                avoided.about, avoided.doing = (
                    InProgress(name, entry.shard, entry.token, lo, hi),
                    kept,
                )  # type: ignore[assignment]
                shard.avoid(avoided)
            return shard

    monkeypatch.setattr(pipeline_harness, "Assembly", Noting)
    for form in [
        each
        for each in vars(json_lines).values()
        if isinstance(each, type) and hasattr(each, "decode")
    ]:
        monkeypatch.setattr(form, "decode", _dying(form.decode))
    return kept


def _dying(decode: Any) -> Any:
    def wrong(self: Any, block: Any) -> Any:
        if b"crash" in b"".join(block.lines()):
            raise DiedError
        return decode(self, block)

    return wrong


def written(folder: Path) -> Path:
    lines = [json.dumps({"n": n, "at": n, "do": "crash" if n in BAD else ""}) for n in range(LINES)]
    (folder / "in.jsonl").write_text("\n".join(lines) + "\n")
    (folder / "p.yaml").write_text("""
pipeline: p
streams:
  given:
    source: {files: {path: in.jsonl, format: jsonl}}
    timestamp: {field: at, unit: us}
    fields: {n: int, at: int}
computations: {out: {input: given, filter: "n >= 0", output: rows}}
sinks: {rows: {files: {path: out, format: jsonl}}}
""")
    return folder / "p.yaml"


@pytest.mark.parametrize("crash_every", [None, 9])
def test_lines_that_end_their_readers_are_dead_letters_and_all_others_are_read(
    tmp_path: Path, notes: Notes, crash_every: int | None
) -> None:
    pipeline = written(tmp_path)
    for _ in range(2 + 2 * len(BAD) + 1):
        try:
            with PipelineHarness(
                pipeline, run_sources=True, shards=1, workers=1, crash_every=crash_every
            ) as harness:
                rows, letters = harness.read("rows"), harness.read(DEAD_LETTERS)
        except DiedError:
            notes.died()
        else:
            break
    assert len(notes.deaths) == 2 + 2 * len(BAD)
    assert sorted(row["n"] for row in rows) == [n for n in range(LINES) if n not in BAD]
    assert [json.loads(letter["value"])["n"] for letter in letters] == list(BAD)
    assert {letter["position"].split("@")[0] for letter in letters} == {"in.jsonl"}
    assert (
        letters[0]["reason"]
        == "the worker was killed by SIGSEGV each time this line was processed, 2 times alone"
        " (bad.py:7 in decode)"
    )


def test_a_reader_that_cannot_pass_over_a_record_reads_it_again(tmp_path: Path) -> None:
    from tests.fakes.reading import open_file

    (tmp_path / "a.csv").write_text('a\n"1\n2"\n')
    assert open_file(tmp_path / "a.csv", "csv").skip(0) is None
