"""A callback that cannot be made, called or stored is refused with file, line and the fix, before
anything starts."""

from __future__ import annotations

from pathlib import Path
from textwrap import dedent
from typing import Any

import pytest

from millwheel.errors import PipelineError
from millwheel.language.spec import check_pipeline
from tests.unit.language.spec.test_pipelines import MINIMAL

PIPELINE = """
pipeline: p
streams:
  hits: {source: {injection: {}}, timestamp: at}
computations:
  c:
    input: {hits: {key: user}}
    FORM
    callback: code_of_it:It
    output: out
sinks:
  out: {files: {path: out}}
"""
HEAD = """
import msgspec
from millwheel import Computation, ListState, MapState, ValueState


"""
RECORD = "def process_record(self, ctx, record): pass"


def problems(folder: Path, code: str, form: str = "") -> list[str]:
    # modules of another folder are imported anew
    folder = folder / str(len(list(folder.iterdir())))
    folder.mkdir()
    (folder / "code_of_it.py").write_text(HEAD + dedent(code))
    (folder / "p.yaml").write_text(PIPELINE.replace("    FORM\n", f"    {form}\n" if form else ""))
    try:
        check_pipeline(folder / "p.yaml")
    except PipelineError as ex:
        return [str(each) for each in ex.args]
    return []


def class_of(*lines: str) -> str:
    return "class It(Computation):\n" + "".join(f"    {line}\n" for line in lines)


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("def process_record(self, record): pass", "write def process_record(self, ctx, record)"),
        ("def process_record(self, ctx, record, more): pass", "cannot be called with ctx, record"),
        ("def process_record(ctx, record): pass", "write def process_record(self, ctx, record)"),
        ("async def process_record(self, ctx, record): pass", "without async"),
        ("def process_record(self, ctx, record): yield 1", "ctx.produce(stream, value)"),
        ("process_record = 7", "is a int, not a method"),
        ("def process_batch(self, records): pass", "write def process_batch(self, ctx, records)"),
        (
            f"{RECORD}\n    def process_timer(self, ctx): pass",
            "write def process_timer(self, ctx, timer)",
        ),
    ],
)
def test_methods_that_cannot_be_called_as_the_runtime_will(
    tmp_path: Path, line: str, words: str
) -> None:
    [problem] = problems(tmp_path, class_of(line))
    assert words in problem
    assert "computations.c.callback" in problem
    assert "=" in line or "code_of_it.py:" in problem


def test_a_method_of_windows_is_called_with_key_window_and_records(tmp_path: Path) -> None:
    form = "window: {tumbling: 1m}"
    [problem] = problems(
        tmp_path, class_of("def process_window(self, ctx, window, records): pass"), form
    )
    assert (
        "code_of_it.py:7: It.process_window cannot be called with ctx, key, window, records"
        in problem
    )
    assert not problems(
        tmp_path, class_of("def process_window(self, ctx, key, window, records): pass"), form
    )


@pytest.mark.parametrize(
    "lines",
    [
        ["def process_record(self, *everything): pass"],
        ["def process_record(self, ctx, record, more=1): pass"],
        ["@staticmethod", "def process_record(ctx, record): pass"],
        ["def process_batch(self, ctx, records): pass"],
        ["def process_batch(self, ctx, records): pass", "process_record = 7"],
        ["process_record = lambda self, ctx, record: None", "def process_window(self): pass"],
        [
            RECORD,
            "a = ValueState(int)",
            "b = ValueState(int, default=float('-inf'))",
            "c = ValueState(list, default=list)",
        ],
        [
            RECORD,
            "a = ListState(str)",
            "b = MapState(dict[str, float], ttl='1h')",
            "c = ValueState(default=dict)",
        ],
        [RECORD, "def __init__(self): self.cache = {}"],
    ],
)
def test_what_can_be_called_and_stored_is_left_alone(tmp_path: Path, lines: list[str]) -> None:
    assert problems(tmp_path, class_of(*lines)) == []


@pytest.mark.parametrize(
    ("state", "words"),
    [
        ("ValueState(dict, default=list)", "give a default that fits"),
        ("ValueState(default=object)", "cannot be stored and read back"),
        (
            "ValueState(int, default=lambda: 1 / 0)",
            "a default that cannot be built: ZeroDivisionError",
        ),
        ("MapState(dict[list, int] | dict[str, int])", "declare a type that msgspec supports"),
    ],
)
def test_state_that_cannot_be_stored(tmp_path: Path, state: str, words: str) -> None:
    [problem] = problems(tmp_path, class_of(f"kept = {state}", RECORD))
    assert words in problem
    assert "code_of_it.py:6: It.kept " in problem


def test_a_callback_that_cannot_be_made(tmp_path: Path) -> None:
    [problem] = problems(tmp_path, class_of("def __init__(self): self.n = {}['n']", RECORD))
    assert (
        "code_of_it.py:6: It cannot be built with these options: KeyError: 'n' (code_of_it.py:7)"
        in problem
    )
    code = class_of("def __init__(self, at): open(at)", RECORD)
    [problem] = problems(tmp_path, code, "options: {at: nowhere/to/be/found}")
    assert "computations.c.options: code_of_it.py:6" in problem
    assert "FileNotFoundError" in problem


def test_all_mistakes_of_a_class_are_told_at_once(tmp_path: Path) -> None:
    [problem] = problems(
        tmp_path,
        class_of(
            "kept = ValueState(dict, default=list)",
            "def process_record(self): pass",
            "def process_timer(self): pass",
        ),
    )
    assert all(word in problem for word in ("It.kept", "It.process_record", "It.process_timer"))


def test_a_callback_whose_options_hold_a_secret_is_made_where_the_secret_is(tmp_path: Path) -> None:
    code = class_of("def __init__(self, token): raise ValueError(token)", RECORD)
    assert problems(tmp_path, code, 'options: {token: "${secret:TOKEN}"}') == []


def test_a_default_that_can_be_changed_is_of_one_key_alone() -> None:
    from millwheel import Computation, ValueState
    from tests.unit.engine.workers.state.test_keyed_state import Bench

    class Shared(Computation):
        notes: Any = ValueState(list, default=[])

    bench = Bench(Shared)
    bench.at("a", 0).notes.get().append(1)
    assert bench.at("b", 0).notes.get() == []


# code.py: Code that a pipeline names is imported when it is checked, and only then.


def test_without_checking_code_nothing_is_imported(weblog: str, check: Any, folder: Path) -> None:
    (folder / "detectors.py").write_text("raise SystemExit('imported')")
    assert check(weblog, check_code=False).name == "weblog"


def test_a_factory_of_a_third_party_that_fails_is_a_problem(
    problems: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*given: Any) -> None:
        raise RuntimeError("no such broker")

    monkeypatch.setattr("millwheel.connect.kinds.build_sink", fails)
    (found,) = problems(MINIMAL)
    assert found.endswith(
        "sinks.out.stdout: stdout cannot be built with these options: RuntimeError: no such broker"
    )
