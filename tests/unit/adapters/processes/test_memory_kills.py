from __future__ import annotations

from pathlib import Path

from millwheel.adapters.processes.memory_kills import memory_kills


def test_kills_of_the_machine_and_of_all_groups_around_are_counted(tmp_path: Path) -> None:
    own, machine, mounted = tmp_path / "cgroup", tmp_path / "vmstat", tmp_path / "fs"
    (mounted / "a" / "b").mkdir(parents=True)
    own.write_text("0::/a/b\n")
    machine.write_text("nr_free_pages 5\noom_kill 1\n")
    (mounted / "a" / "memory.events").write_text("low 0\noom 9\noom_kill 2\noom_group_kill 0\n")
    (mounted / "a" / "b" / "memory.events").write_text("oom_kill 4\n")
    assert memory_kills(mounted, own, machine) == 7


def test_the_older_hierarchy_counts_too_and_what_is_missing_counts_nothing(tmp_path: Path) -> None:
    own, mounted = tmp_path / "cgroup", tmp_path / "fs"
    (mounted / "memory" / "a").mkdir(parents=True)
    own.write_text("9:cpu:/a\n4:memory:/a\n")
    (mounted / "memory" / "a" / "memory.oom_control").write_text(
        "oom_kill_disable 0\nunder_oom 0\noom_kill 3\n"
    )
    assert memory_kills(mounted, own, tmp_path / "none") == 3
    assert memory_kills(mounted, tmp_path / "none", tmp_path / "none") == 0
