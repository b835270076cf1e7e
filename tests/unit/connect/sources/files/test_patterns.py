"""Files as people have them: links, brackets, names that are not UTF-8."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millwheel.connect.sources.files.patterns import FilePattern, dealt, each_once, name_of, path_of


def make(folder: Path, *names: str) -> None:
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(b"{}\n")


def found(folder: Path, path: str) -> list[str]:
    pattern = FilePattern(str(folder), path)
    return sorted(
        os.path.relpath(each, folder)
        for each in each_once(pattern.matches())
        if os.path.isfile(each)
    )


@pytest.mark.parametrize(
    "path",
    ["in/*.jsonl", "in/**/*.jsonl", "in/**", "in", "in/a?.jsonl", "../*/in/*", "in/a1.jsonl"],
)
@pytest.mark.parametrize("project", ["proj [1]", "p*q", "p?", "[!a]", "plain"])
def test_a_relative_path_works_in_a_folder_of_any_name(
    tmp_path: Path, project: str, path: str
) -> None:
    make(tmp_path / project, "in/a1.jsonl")
    make(tmp_path, "other/else.jsonl")
    assert found(tmp_path / project, path) == ["in/a1.jsonl"]
    assert FilePattern(str(tmp_path / project), "in/*").fixed_folder == str(
        tmp_path / project / "in"
    )


def test_brackets_in_a_path_may_be_part_of_a_name(tmp_path: Path) -> None:
    make(tmp_path, "in/a[1].jsonl", "data [2]/x.jsonl", "data [2]/y.csv")
    assert found(tmp_path, "in/a[1].jsonl") == ["in/a[1].jsonl"]
    assert found(tmp_path, "data [2]/*.jsonl") == ["data [2]/x.jsonl"]
    assert found(tmp_path, str(tmp_path / "data [2]" / "*.jsonl")) == ["data [2]/x.jsonl"]
    assert found(tmp_path, "data [2]") == ["data [2]/x.jsonl", "data [2]/y.csv"]
    make(tmp_path, "in/a1.jsonl")
    assert found(tmp_path, "in/a[12].jsonl") == ["in/a1.jsonl"]


def test_a_file_with_a_second_name_counts_once_under_its_own(tmp_path: Path) -> None:
    make(tmp_path, "in/app-1.jsonl", "in/day1/a.jsonl", "far/b.jsonl")
    (tmp_path / "in" / "aa-current.jsonl").symlink_to("app-1.jsonl")
    (tmp_path / "in" / "0-latest").symlink_to("day1")
    (tmp_path / "in" / "far.jsonl").symlink_to(tmp_path / "far" / "b.jsonl")
    (tmp_path / "in" / "gone.jsonl").symlink_to("nothing")
    assert found(tmp_path, "in/*.jsonl") == ["in/app-1.jsonl", "in/far.jsonl"]
    assert found(tmp_path, "in/**/*.jsonl") == ["in/app-1.jsonl", "in/day1/a.jsonl", "in/far.jsonl"]
    assert found(tmp_path, "in/*/a.jsonl") == ["in/day1/a.jsonl"]
    assert found(tmp_path, "in/0-latest/*") == ["in/0-latest/a.jsonl"]


def test_loops_of_links_end(tmp_path: Path) -> None:
    make(tmp_path, "in/day1/a.jsonl", "in/day2/b.jsonl")
    for day in ("day1", "day2"):
        for name in ("up", "again", "other"):
            (tmp_path / "in" / day / name).symlink_to("..")
    (tmp_path / "in" / "self").symlink_to("self")
    assert found(tmp_path, "in/**/*.jsonl") == ["in/day1/a.jsonl", "in/day2/b.jsonl"]


def test_hidden_files_match_only_a_pattern_that_names_the_point(tmp_path: Path) -> None:
    make(tmp_path, "in/.a.jsonl", "in/.b/c.jsonl", "in/d.jsonl")
    assert found(tmp_path, "in/**/*.jsonl") == ["in/d.jsonl"]
    assert found(tmp_path, "in/.*.jsonl") == ["in/.a.jsonl"]
    assert found(tmp_path, "in/.b/*") == ["in/.b/c.jsonl"]


def test_names_of_any_bytes_are_text_and_lead_back(tmp_path: Path) -> None:
    top = os.fsencode(tmp_path)
    for name in (b"caf\xe9.jsonl", b"plain.jsonl", b"with\\x41.jsonl"):
        with open(os.path.join(top, name), "wb"):
            pass
        [path] = [
            each
            for each in FilePattern(str(tmp_path), "*").matches()
            if os.fsencode(each).endswith(name)
        ]
        named = name_of(path, str(tmp_path))
        named.encode()
        assert path_of(named, str(tmp_path)) == path


@pytest.mark.parametrize(
    ("pattern", "path", "fits"),
    [
        ("in/*.jsonl", "in/a.jsonl", True),
        ("in/*.jsonl", "in/.a.jsonl", False),
        ("in/*.jsonl", "in/b/a.jsonl", False),
        ("in/*.jsonl", "in/../x.jsonl", False),
        ("in/**/*.jsonl", "in/a.jsonl", True),
        ("in/**/*.jsonl", "in/b/c/a.jsonl", True),
        ("in/**/*.jsonl", "in/.b/a.jsonl", False),
        ("in/**", "in/b/c", True),
        ("in/**", ".ssh/id", False),
        ("in", "in/a", True),
        ("in", "in/_SUCCESS", False),
        ("in", "in/b/a", False),
        ("in/a.jsonl", "in/a.jsonl", True),
        ("in/a.jsonl", "in/b.jsonl", False),
        ("in/[ab]?", "in/ax", True),
        ("in/.*", "in/.a", True),
        ("**/" * 12 + "b", "a/" * 500 + "a", False),
    ],
)
def test_a_path_fits_a_pattern_exactly_when_it_would_match_were_it_there(
    pattern: str, path: str, fits: bool, tmp_path: Path
) -> None:
    found, whole = FilePattern(str(tmp_path), pattern), os.path.normpath(tmp_path / path)
    assert found.fits(whole) == fits
    if len(path) < 100:
        os.makedirs(os.path.dirname(whole), exist_ok=True)
        Path(whole).touch()
        assert (whole in found.matches()) == fits


@given(st.dictionaries(st.text("abc", min_size=1), st.integers(0, 1_000), min_size=2))
def test_either_half_of_the_files_has_about_half_of_their_bytes(sizes: dict[str, int]) -> None:
    order = dealt(sizes)
    assert sorted(order) == sorted(sizes)
    assert order == dealt(dict(reversed(sizes.items())))
    middle = len(order) // 2
    lower, upper = (sum(sizes[name] for name in half) for half in (order[:middle], order[middle:]))
    assert abs(lower - upper) <= max(sizes.values())
