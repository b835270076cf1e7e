from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from millwheel.adapters.processes import interpreter
from millwheel.adapters.processes.interpreter import module_command, started_module

NAMES = ("queue", "secrets", "statistics", "calendar", "msgspec", "polars")


@pytest.fixture
def trap(tmp_path: Path) -> Path:
    """A folder with files of the names of libraries' modules, each of which tells that it was
    executed."""
    for name in NAMES:
        (tmp_path / f"{name}.py").write_text(f"open('executed', 'a').write('{name} ')\n")
    return tmp_path


def outcome(command: list[str], folder: Path) -> tuple[int, str]:
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=60)
    executed = folder / "executed"
    return done.returncode, executed.read_text() if executed.exists() else done.stderr


@pytest.mark.parametrize("safe_path", [True, False], ids=["-P", "-c"])
def test_a_process_of_a_run_never_imports_from_the_current_folder(
    safe_path: bool, trap: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if safe_path and sys.version_info < (3, 11):
        pytest.skip("this Python has no -P")
    monkeypatch.setattr(interpreter, "_HAS_SAFE_PATH", safe_path)
    code, said = outcome(module_command("millwheel.engine.workers", ("--no-such-option",)), trap)
    assert code == 2
    assert "--no-such-option" in said  # it has loaded what it needs and has read its own arguments


def test_neither_does_the_command_itself_by_a_plain_m(trap: Path) -> None:
    assert outcome([sys.executable, "-m", "millwheel", "--version"], trap) == (0, "")


def test_a_program_of_the_users_keeps_its_path(trap: Path) -> None:
    (trap / "program.py").write_text(
        "import millwheel, sys; assert sys.path[0] == sys.argv[1], sys.path"
    )
    for words in (["-m", "program"], ["program.py"]):
        (trap / "secrets.py").unlink(missing_ok=True)
        for name in NAMES:
            (trap / f"{name}.py").unlink(missing_ok=True)
        assert outcome([sys.executable, *words, str(trap)], trap) == (0, "")


@pytest.mark.parametrize(
    ("argv", "module"),
    [
        ("python -m millwheel run", "millwheel"),
        ("python -mmillwheel run", "millwheel"),
        ("python -X dev -W error -m millwheel.engine.workers", "millwheel.engine.workers"),
        ("python program.py -m millwheel", ""),
        ("python -c pass -m millwheel", ""),
        ("python", ""),
    ],
)
def test_the_module_of_a_command_line(argv: str, module: str) -> None:
    assert started_module(argv.split()) == module


PACKAGE = Path(__file__).parents[4] / "millwheel"
OTHERS = {
    "__main__.py": "calls the command line",
    "tools/chaos/namespaced_worker.py": "becomes a worker",
    "launch/launchers/warm_parent.py": "becomes the module that it is asked for",
    "adapters/processes/lifeline.py": "becomes the module that it is asked for",
}
"""Modules that are executed and do not begin a process themselves."""


def test_files_are_private_and_the_soft_limit_of_files_is_the_hard_one() -> None:
    code = (
        "import os, resource\n"
        "from millwheel.adapters.processes.interpreter import begin_process\n"
        "resource.setrlimit(resource.RLIMIT_NOFILE, (256, 1024))\n"
        "begin_process()\n"
        "print(resource.getrlimit(resource.RLIMIT_NOFILE)[0], os.umask(0))\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["1024", str(0o077)]


def test_every_module_that_is_executed_begins_its_process() -> None:
    executed = {
        path.relative_to(PACKAGE).as_posix(): text
        for path in PACKAGE.rglob("*.py")
        if '__name__ == "__main__"' in (text := path.read_text(encoding="utf-8"))
    }
    assert OTHERS.keys() <= executed.keys()
    assert [
        name
        for name, text in executed.items()
        if name not in OTHERS and "    begin_process(" not in text
    ] == []
