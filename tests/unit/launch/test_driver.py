"""What a run checks and writes before a process is started, and what it says when it is over."""

from __future__ import annotations

import io
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from rich.console import Console

from millwheel.errors import BrokenError, PipelineError, SetupError
from millwheel.launch import driver as module
from millwheel.launch.driver import Driver
from millwheel.launch.progress.summary import Summary
from millwheel.launch.settings import LauncherKind, RunSettings

PIPELINE = """
pipeline: clicks
streams: {clicks: {source: {files: {path: "in-*.jsonl", format: jsonl}}, timestamp: at}}
computations: {by_ad: {input: {clicks: {key: ad}}, output: counted, window: {tumbling: 10s}}}
sinks: {counted: {files: {path: out}}}
"""
SUMMARY = Summary(1, 1, 0, 0, 0, 1.0, 1.0)


class Command:
    """``millwheel run`` on one root, again and again. ``ends`` is how the processes' part of it
    goes."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.folder = folder
        self.ends: Callable[[], Summary | None] = lambda: SUMMARY
        self.caught_up = False
        self.runs = 0
        self.shipped: list[str] = []
        (folder / "pipeline.yaml").write_text(PIPELINE)
        (folder / "in-1.jsonl").write_text('{"at": 1, "ad": "a"}\n')
        monkeypatch.setattr(module, "Running", self._running)

    def _running(self, settings: RunSettings, spec: Any, root: Any, *parts: Any) -> Any:
        def run() -> Summary | None:
            self.runs += 1
            self.shipped = sorted(path.name for path in root.path.iterdir())
            return self.ends()

        return SimpleNamespace(run=run, caught_up=self.caught_up)

    def run(self, **settings: Any) -> str:
        """What is said on standard error."""
        said = io.StringIO()
        options = {
            "root": str(self.folder / "root"),
            "launcher": LauncherKind.PROCESSES,
            **settings,
        }
        given = RunSettings(str(self.folder / "pipeline.yaml"), **options)
        assert Driver(given, Console(file=said, width=500), None).run() == 0
        return said.getvalue()


@pytest.fixture
def command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Command:
    return Command(tmp_path, monkeypatch)


def raises(error: Exception) -> Callable[[], Summary | None]:
    def end() -> Summary | None:
        raise error

    return end


def test_all_that_processes_need_is_in_the_root_before_they_are_started(command: Command) -> None:
    command.run()
    assert {"identity.json", "inputs", "pipeline"} <= set(command.shipped)


def test_a_run_that_is_complete_does_nothing_again(command: Command) -> None:
    command.run()
    assert "was complete already" in command.run()
    assert command.runs == 1


def test_new_input_for_a_run_that_is_complete_is_no_silent_nothing(command: Command) -> None:
    command.run()
    (command.folder / "in-2.jsonl").write_text('{"at": 2, "ad": "b"}\n')
    with pytest.raises(
        SetupError,
        match=r"has processed all of its input, and now .*in-2\.jsonl was added.*Give a new --root",
    ):
        command.run()


def test_new_input_for_a_run_that_goes_on_is_told_and_not_read(command: Command) -> None:
    command.ends = lambda: None
    assert "Stopped. The same command continues on the root" in command.run()
    (command.folder / "in-2.jsonl").write_text('{"at": 2, "ad": "b"}\n')
    assert "this run continues with the root's original input" in command.run()
    assert command.runs == 2


def test_a_run_that_has_caught_up_goes_on_another_time(command: Command) -> None:
    command.caught_up = True
    assert "Caught up. The same command continues" in command.run(until_caught_up=True)
    assert "Caught up." in command.run(until_caught_up=True)


def test_mistakes_are_told_before_a_root_is_made(command: Command) -> None:
    with pytest.raises(SetupError, match="--security"):
        command.run(listen="0.0.0.0", zookeeper="h:1")
    (command.folder / "pipeline.yaml").write_text(
        PIPELINE.replace("tumbling: 10s", "tumbling: 10x")
    )
    with pytest.raises(PipelineError, match="10x"):
        command.run()
    (command.folder / "pipeline.yaml").unlink()
    with pytest.raises(SetupError, match="There is no pipeline file"):
        command.run()
    assert not (command.folder / "root").exists()


def test_another_pipeline_on_the_root_is_refused(command: Command) -> None:
    command.ends = lambda: None
    command.run()
    (command.folder / "pipeline.yaml").write_text(
        PIPELINE.replace("pipeline: clicks", "pipeline: views")
    )
    with pytest.raises(SetupError, match="belongs to the pipeline 'clicks', not to 'views'"):
        command.run()


def test_a_root_that_a_savepoint_cannot_be_put_into_is_told(
    command: Command, tmp_path: Path
) -> None:
    with pytest.raises(SetupError, match="savepoint"):
        command.run(from_savepoint=str(tmp_path / "nothing"))


def test_an_error_of_the_system_is_a_sentence_and_the_root_is_free_again(command: Command) -> None:
    command.ends = raises(OSError(28, "No space left on device", "/root/journal"))
    with pytest.raises(
        SetupError, match="The run failed on /root/journal: No space left on device"
    ):
        command.run()
    command.ends = lambda: SUMMARY
    command.run()


def test_a_run_that_is_stopped_for_failures_can_go_on(command: Command) -> None:
    command.ends = raises(BrokenError("by_ad failed too often", "by_ad"))
    with pytest.raises(BrokenError):
        command.run()
    command.ends = lambda: SUMMARY
    command.run()
    assert command.runs == 2


def test_fields_that_a_sink_cannot_take_are_told_with_the_line_of_the_sink(
    command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[tuple[str, ...]] = []

    class Refusing:
        def check(self, identity: str) -> None: ...

        def check_fields(self, fields: Any) -> None:
            asked.append(tuple(fields))
            raise SetupError("the table has no column 'results'")

    build = module.build_sink
    monkeypatch.setattr(
        module,
        "build_sink",
        lambda sink, folder: Refusing() if sink.stream == "counted" else build(sink, folder),
    )
    with pytest.raises(
        SetupError, match=r"pipeline.yaml:5: sinks.counted.files: the table has no column 'results'"
    ):
        command.run()
    assert asked == [("ad", "window_start", "window_end", "result")]
    assert command.runs == 0
