from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from millwheel import (
    AfterCount,
    AfterWatermark,
    FileSink,
    GeneratorSource,
    Pipeline,
    StdoutSink,
    Tumbling,
    agg,
)
from millwheel.errors import MillwheelError, PipelineError, SetupError
from millwheel.language.spec import load_pipeline
from millwheel.launch.settings import LauncherKind, RunSettings
from millwheel.python.handles import start


@pytest.fixture
def begun(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> list[tuple[RunSettings, dict[str, Any]]]:
    """What would have been started."""
    found: list[tuple[RunSettings, dict[str, Any]]] = []
    monkeypatch.chdir(tmp_path)

    def kept(
        settings: RunSettings, name: str, streams: dict[str, Any], folder: Path, shows: bool
    ) -> None:
        found.append((settings, streams))

    monkeypatch.setattr(start, "RunHandle", kept)
    return found


def pages(bounded: bool = True) -> Pipeline:
    p = Pipeline("pages")
    hits = p.read("hits", GeneratorSource(count=3 if bounded else None))
    hits.key_by("key").window(Tumbling("1m")).aggregate({"n": agg.count()}, output="by_page")
    hits.filter("value > ${least}", output="high").write(StdoutSink())
    return p


def test_plain_processes_on_this_machine_are_the_default(begun: list[Any], tmp_path: Path) -> None:
    pages().start({"least": 3}, workers=3)
    [(settings, _)] = begun
    assert (settings.launcher, settings.workers, settings.params) == (
        LauncherKind.PROCESSES,
        3,
        {"least": "3"},
    )
    assert settings.root == str(tmp_path / ".millwheel" / "pages")


def test_outputs_that_nothing_consumes_are_kept_if_the_input_is_bounded(
    begun: list[Any], tmp_path: Path
) -> None:
    for bounded in (True, False):
        pages(bounded).start({"least": 1}, root="r")
    (bound, streams), (free, others) = begun
    assert streams["by_page"].path == tmp_path / "r" / "results" / "by_page"
    assert [sink.stream for sink in load_pipeline(bound.pipeline, bound.params).sinks] == [
        "high",
        "by_page",
    ]
    assert [sink.stream for sink in load_pipeline(free.pipeline, free.params).sinks] == ["high"]
    assert "by_page" not in others
    assert others["high"] == "stdout"


def test_results_that_take_back_earlier_ones_say_so(begun: list[Any]) -> None:
    p = Pipeline("p")
    window = (
        p.read("hits", GeneratorSource(count=3))
        .key_by("key")
        .window(Tumbling("1m"), accumulation="retracting")
    )
    window.trigger(AfterWatermark(early=AfterCount(1))).aggregate({"n": agg.count()}, output="n")
    p.start()
    [(settings, _)] = begun
    [sink] = load_pipeline(settings.pipeline).sinks
    assert sink.options["mode"] == "changelog"


def test_what_cannot_be_started_is_said_before_anything_is(begun: list[Any]) -> None:
    with pytest.raises(PipelineError, match=r"least"):
        pages().start()
    with pytest.raises(SetupError, match="'by_pag'; did you mean 'by_page'"):
        pages().start({"least": 1}, keep=["by_pag"])
    with pytest.raises(SetupError, match="unknown setting of a run 'worker_count'"):
        pages().start({"least": 1}, worker_count=3)
    with pytest.raises(SetupError, match="--spares many: it is a number, or `auto`"):
        pages().start({"least": 1}, spares="many")
    assert begun == []


def test_a_file_that_runs_its_pipeline_while_it_is_imported_is_told(
    begun: list[Any], tmp_path: Path
) -> None:
    file = tmp_path / "eager.py"
    file.write_text(
        "from millwheel import *\np = Pipeline('p')\np.read('h',"
        " InjectionSource()).write(StdoutSink())\np.run()\n"
    )
    with pytest.raises(
        PipelineError, match=r"eager.py:4: run\(\) is called while the file is imported.*__main__"
    ):
        load_pipeline(str(file))


def test_run_waits_and_ctrl_c_stops_in_order() -> None:
    class Handle:
        said: list[str] = []

        def result(self) -> None:
            raise KeyboardInterrupt

        def stop(self) -> None:
            self.said.append("stop")
            raise KeyboardInterrupt

        def kill(self) -> None:
            self.said.append("kill")

    with pytest.raises(KeyboardInterrupt):
        start.in_foreground(Handle())  # type: ignore[arg-type]
    assert Handle.said == ["stop", "kill"]


def test_explain_needs_no_parameters_and_draws_itself_in_a_notebook() -> None:
    assert "value > 3" in str(pages().explain({"least": 3}))
    p = Pipeline("p")
    p.read("hits", GeneratorSource(count=3)).write(FileSink("${output}/hits"))
    assert "${output}" in str(p.explain())
    assert p._repr_html_().startswith("<svg")
    with pytest.raises(MillwheelError):
        Pipeline("nothing").explain()


def test_settings_of_spark_are_text_however_python_has_them() -> None:
    found = start._settings(
        {}, 2, {"launcher": "spark", "conf": {"spark.a": True, "spark.b": 2, "spark.c": "x"}}
    )
    assert found.conf == {"spark.a": "true", "spark.b": "2", "spark.c": "x"}
    assert start._settings({}, 2, {}).conf == {}
