"""A question never sees a step that waits for a verdict: it may never be committed."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from millwheel.testing import PipelineHarness
from millwheel.workers.host.assembly import Assembly

M = 60_000_000
FORMS = {
    "slices": "slices: {every: 1m, keep: 1d}\n    aggregate: {n: count, s: {sum: v}}",
    "windows": "window: {tumbling: 1h}\n    aggregate: {n: count, s: {sum: v}}\n    output: out",
    "sessions": "window: {session: 1h}\n    aggregate: {n: count, s: {sum: v}}\n    output: out",
    "late": "window: {tumbling: 1h}\n    allowed_lateness: 1h\n    accumulation: accumulating\n"
    "    aggregate: {n: count, s: {sum: v}}\n    output: out",
    "latest": "window: {tumbling: 1h}\n    queryable: latest\n    aggregate: {n: count, s: {sum: v}}\n    output: out",
}


@contextmanager
def harness(folder: Path, form: str, declared: bool) -> Iterator[PipelineHarness]:
    fields = "fields: {k: int, t: int, v: int}" if declared else ""
    (folder / "p.yaml").write_text(f"""
pipeline: p
streams:
  in:
    source: {{files: {{path: "{folder}/none.jsonl", format: jsonl}}}}
    timestamp: t
    watermark: {{max_delay: 1d}}
    {fields}
computations:
  c:
    input: {{in: {{key: k}}}}
    {FORMS[form]}
sinks:
  dead_letters: {{stdout: {{}}}}
""")
    right = Assembly.__init__

    def with_policies(self: Assembly, *args: Any, **more: Any) -> None:
        right(self, *args, **more)
        self.stop_broken()

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Assembly, "__init__", with_policies)
        with PipelineHarness(str(folder / "p.yaml"), shards=1, workers=1, now=10 * M) as made:
            yield made


@pytest.mark.parametrize("declared", [True, False], ids=["columns", "rows"])
@pytest.mark.parametrize("form", FORMS)
def test_a_question_during_a_step_that_waits_is_answered_from_before_it(
    tmp_path: Path, form: str, declared: bool
) -> None:
    with harness(tmp_path, form, declared) as made:
        shard = made._shard("c", 1)

        def asked() -> tuple[Any, int]:
            mode = {} if form == "slices" else {"mode": "open"}
            answer = made.ask("c", 1, "1h" if form == "slices" else None, until=10 * M, **mode)
            found = answer.values if form == "slices" else answer.values["windows"][0]
            return (found["n"], found["s"]), answer.commit

        made.push("in", [{"k": 1, "t": M, "v": 5}])
        before = asked()
        assert before[0] == (1, 5)
        made.push("in", [{"k": 1, "t": 2 * M, "v": 7}, {"k": 1, "t": 2 * M, "v": None}])
        assert shard.commits.waiting is not None
        assert asked() == before
        made.advance_processing_time(15 * M)
        assert shard.commits.waiting is None
        after = asked()
        assert after[0] == (2, 12), "nothing of before is kept"
        assert after[1] > before[1]


@pytest.mark.parametrize("key", [1, "abc", ("a", 1), 2**63, b"x", ""])
@pytest.mark.parametrize("form", [form for form in FORMS if form != "slices"])
def test_a_key_that_no_record_can_have_has_nothing_and_is_no_failure(tmp_path: Path, form: str, key: Any) -> None:
    with harness(tmp_path, form, True) as made:
        made.push("in", [{"k": 7, "t": M, "v": 5}])
        assert made.ask("c", key, mode="open").values["windows"] == []
