"""``deploy/spark_submit.py``: a run inside of an application that spark-submit has started."""

from __future__ import annotations

import inspect
import os
import sys

import pytest

from millwheel.adapters.processes.logs import LogFormat
from millwheel.launch.settings import LauncherKind, RunSettings
from millwheel.tools.cli.run import main, run, submit
from tests.unit.tools.cli.test_app import Asked, asked  # noqa: F401  (a fixture)

SPARK_DECIDES = {"launcher", "spark_master", "confs"}


@pytest.fixture(autouse=True)
def own_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """A run tells its children where secrets are, by a variable that no other test may see."""
    monkeypatch.setenv("MILLWHEEL_SECRETS", "x")
    monkeypatch.delenv("MILLWHEEL_SECRETS")


def submitted(monkeypatch: pytest.MonkeyPatch, *words: str) -> int:
    """The exit code of the application."""
    monkeypatch.setattr(sys, "argv", ["spark_submit.py", *words])
    with pytest.raises(SystemExit) as end:
        main()
    return int(end.value.code or 0)


def test_it_has_every_option_of_run_but_those_that_spark_submit_decides() -> None:
    options, of_run = (
        inspect.signature(submit).parameters,
        inspect.signature(run).parameters,
    )
    assert {name: str(each.default) for name, each in options.items()} == {
        name: str(each.default) for name, each in of_run.items() if name not in SPARK_DECIDES
    }


def test_every_option_reaches_the_driver(
    asked: type[Asked],  # noqa: F811
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    words = (
        "p.yaml --set a=1 --workers 3 --spares 1 --root /r --zookeeper h:1/c --summary s.json"
        " --listen auto"
    )
    more = "--security certs --secrets words --from-savepoint /s --no-balance --until-caught-up"
    more += " --metrics-port 9464 --metrics-listen 0.0.0.0 --log-format json"
    assert submitted(monkeypatch, *words.split(), *more.split()) == 0
    assert asked.settings == [
        RunSettings(
            pipeline="p.yaml",
            params={"a": "1"},
            workers=3,
            spares=1,
            launcher=LauncherKind.SPARK,
            submitted=True,
            root="/r",
            zookeeper="h:1/c",
            summary="s.json",
            listen="auto",
            security=os.path.abspath("certs"),
            secrets=os.path.abspath("words"),
            from_savepoint="/s",
            balance=False,
            until_caught_up=True,
            metrics_port=9464,
            metrics_listen="0.0.0.0",
            log_format=LogFormat.JSON,
        )
    ]


def test_a_mistake_is_a_sentence_and_exit_code_1(
    asked: type[Asked],  # noqa: F811
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert submitted(monkeypatch, "p.yaml", "--set", "a") == 1
    assert capsys.readouterr().err == "millwheel: --set a: write it as --set NAME=VALUE\n"
    assert not asked.settings
