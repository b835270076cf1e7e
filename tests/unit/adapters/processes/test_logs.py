from __future__ import annotations

import io
import json
import logging
import threading

import pytest

from millwheel.adapters.processes.logs import JsonLogLines, LogFormat, TextLogLines, follow, set_up

CALL = {"node": "counts", "shard": "counts-1", "key_hash": "00ff"}


@pytest.fixture
def logged() -> tuple[logging.Logger, io.StringIO, logging.Handler]:
    logger, said = logging.Logger("mine"), io.StringIO()
    handler = logging.StreamHandler(said)
    logger.addHandler(handler)
    return logger, said, handler


def test_a_line_of_json_has_time_level_process_and_what_it_is_about(
    logged: tuple[logging.Logger, io.StringIO, logging.Handler],
) -> None:
    logger, said, handler = logged
    handler.setFormatter(JsonLogLines({"pipeline": "ads", "process": "worker-0"}))
    logger.warning("a %s\nb", "ä", extra={"shard": "counts-1"})
    try:
        raise ValueError("odd")
    except ValueError:
        logger.exception("it failed")
    first, second = map(json.loads, said.getvalue().splitlines())
    assert first.pop("time").endswith("Z")
    assert first == {
        "level": "WARNING",
        "message": "a ä\nb",
        "logger": "mine",
        "pipeline": "ads",
        "process": "worker-0",
        "shard": "counts-1",
    }
    assert "ValueError: odd" in second["exception"]


def test_a_line_of_user_code_names_the_running_call_and_one_of_another_thread_does_not(
    logged: tuple[logging.Logger, io.StringIO, logging.Handler],
) -> None:
    logger, said, handler = logged
    for formatter in (TextLogLines({}), JsonLogLines({})):
        handler.setFormatter(formatter)
        formatter.follow(lambda: CALL)
        logger.warning("mine")
        other = threading.Thread(target=logger.warning, args=("other",))
        other.start()
        other.join()
    text, other_text, line, other_line = said.getvalue().splitlines()
    assert text.endswith("WARNING mine [counts-1 key 00ff]")
    assert other_text.endswith("WARNING other")
    assert CALL.items() <= json.loads(line).items()
    assert not CALL.keys() & json.loads(other_line).keys()


def test_a_process_sets_up_its_root_logger(monkeypatch: pytest.MonkeyPatch) -> None:
    said = io.StringIO()
    monkeypatch.setattr("sys.stderr", said)
    root = logging.getLogger()
    before, level = root.handlers[:], root.level
    root.handlers[:] = []
    try:
        set_up(LogFormat.JSON, "ads", "master")
        follow(lambda: CALL)
        logging.getLogger("millwheel.x").info("here")
        line = json.loads(said.getvalue())
        assert (line["message"], line["pipeline"], line["process"], line["node"]) == (
            "here",
            "ads",
            "master",
            "counts",
        )
    finally:
        root.handlers[:] = before
        root.setLevel(level)
