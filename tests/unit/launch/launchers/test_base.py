from __future__ import annotations

from millwheel.adapters.processes.interpreter import module_command
from millwheel.launch.launchers.base import WorkerTemplate

TEMPLATE = WorkerTemplate("/root", "zk:2181/x", "p", "/logs", "/scratch")


def test_a_worker_is_told_where_it_belongs_and_which_slot_it_has() -> None:
    argv = TEMPLATE.command(3, "/scratch/3")
    program = module_command("millwheel.engine.workers")
    assert argv[: len(program)] == program
    words = argv[len(program) :]
    told = dict(zip(words[::2], words[1::2], strict=True))
    assert told == {
        "--root": "/root",
        "--zookeeper": "zk:2181/x",
        "--pipeline": "p",
        "--slot": "3",
        "--scratch": "/scratch/3",
        "--listen": "127.0.0.1:0",
    }


def test_folders_of_security_and_secrets_are_named_where_there_are_any() -> None:
    made = WorkerTemplate(
        "/r", "z:1", "p", "/l", "/s", module="other", security="/sec", secrets="/keys"
    )
    argv = made.command(0, "/s/0", python="py")
    assert argv[0] == "py"
    assert argv[argv.index("-m") + 1] == "other"
    assert argv[-4:] == ["--security", "/sec", "--secrets", "/keys"]


def test_the_first_slot_answers_queries_at_the_port_and_the_others_at_free_ones() -> None:
    made = WorkerTemplate("/r", "z:1", "p", "/l", "/s", query_port=6380)
    for slot, port in ((0, "6380"), (1, "0")):
        words = made.arguments(slot, "/s")
        assert words[words.index("--queries") + 1] == f"127.0.0.1:{port}"
    assert "--queries" not in TEMPLATE.arguments(0, "/s")
