"""What the pages for people say is so: their files load, their commands and links exist, their
example runs."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from pathlib import Path

import pytest
import typer.main

from millwheel.language.spec import load_pipeline
from millwheel.tools.cli.app import app
from tests import aggregate_table, function_tables, rooms, tuning
from tests.sim.faults import ALL_FAULTS
from tests.unit.python.fluent.test_twins import without_lines

REPO = Path(__file__).parents[2]
PAGES = sorted(
    page
    for folder in (".", "docs", "docs/*", "deploy", "deploy/*", "examples/*")
    for page in REPO.glob(f"{folder}/*.md")
)
CODE = sorted(
    path
    for folder in ("millwheel", "tests", "bench", "deploy")
    for path in (REPO / folder).rglob("*.py")
)
_FILE = re.compile(r"`([\w.]+)`[^`\n]*:\n\n```\w+\n(.*?)```", re.DOTALL)
_LINK = re.compile(r"\]\(([^)\s]+)\)")
_COMMAND = re.compile(
    r"^ *(?:\$ )?(?:\.venv/bin/)?millwheel ([a-z-]+)((?:.*\\\n)*.*)$", re.MULTILINE
)
_PAGE = re.compile(
    r"\b(docs/[\w/-]+\.md|(?:ARCHITECTURE|GLOSSARY|CONTRIBUTING)(?:\.md)?)(?:#([\w-]+))?"
)
_ANSWER = re.compile(r"`(millwheel/[\w/]+\.py)`(?: \(`([\w.]+)`\))?")
_PATH = re.compile(
    r"`((?:millwheel|tests|examples|deploy|docs|proto)/[\w./-]+\.(?:py|sh|yaml|md|proto))(?:::(\w+)(?:\[[\w-]+\])?)?`"
)
_FENCED = re.compile(r"^ *```.*?^ *```$|(?:^ {4}\S[^\n]*\n)+", re.DOTALL | re.MULTILINE)
_SHOWN = re.compile(
    r"^\| fault \| what happens \| shown by \|\n\|[-|]+\n((?:\|.*\n)+)", re.MULTILINE
)
_FENCE = re.compile(r"^ *```.*?^ *```$", re.DOTALL | re.MULTILINE)

each_page = pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(REPO)))


def files_of_the_readme(folder: Path) -> dict[str, Path]:
    """The example of the README, written to a folder as a reader would do it."""
    found = dict(_FILE.findall((REPO / "README.md").read_text(encoding="utf-8")))
    for name, text in found.items():
        (folder / name).write_text(text, encoding="utf-8")
    return {name: folder / name for name in found}


def _anchors(page: Path) -> set[str]:
    headings = re.findall(
        r"^#+ (.*)$", _FENCE.sub("", page.read_text(encoding="utf-8")), re.MULTILINE
    )
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def test_the_pipeline_of_the_readme_is_right(tmp_path: Path) -> None:
    files = files_of_the_readme(tmp_path)
    spec = load_pipeline(
        str(files["visits.yaml"]),
        {"input": str(files["visits.jsonl"]), "output": str(tmp_path / "out")},
    )
    assert [computation.name for computation in spec.computations] == ["returns", "by_page"]
    assert files["returning.py"].is_file()


def test_the_pipeline_of_the_readme_is_the_same_in_python(tmp_path: Path) -> None:
    files = files_of_the_readme(tmp_path)
    params = {"input": str(files["visits.jsonl"]), "output": str(tmp_path / "out")}
    yaml, python = (load_pipeline(files[f"visits.{form}"], params) for form in ("yaml", "py"))
    assert without_lines(python) == without_lines(yaml)


def test_the_first_screen_is_the_start_of_the_site_with_eight_lines() -> None:
    readme, start = (
        (REPO / name).read_text(encoding="utf-8") for name in ("README.md", "docs/README.md")
    )
    code = dict(_FILE.findall(readme))["hello.py"]
    assert len(code.splitlines()) == 8
    assert readme.index(code) < 1000, "it is on the first screen"
    assert code in start


def test_every_page_has_its_place_in_the_navigation_of_the_site() -> None:
    settings = (REPO / "docs" / "site" / "mkdocs.yml").read_text(encoding="utf-8")
    placed = re.findall(r"^ +- (?:[\w ]+: )?([\w/.-]+\.md)$", settings, re.MULTILINE)
    assert len(placed) == len(set(placed))
    # the start page, as index.md
    pages = {page.relative_to(REPO).as_posix() for page in PAGES} - {"docs/README.md"}
    assert set(placed) == pages | {"index.md", f"docs/{tuning.NAME}"}


@pytest.mark.slow
def test_the_command_of_the_readme_gives_what_the_readme_says(tmp_path: Path) -> None:
    files_of_the_readme(tmp_path)
    text = (REPO / "README.md").read_text(encoding="utf-8")
    command = re.search(r"^\.venv/bin/millwheel (run visits\.yaml .*)$", text, re.MULTILINE)
    said = re.search(r"^cat out/returned/\*\.jsonl +# (.*)$", text, re.MULTILINE)
    assert command is not None
    assert said is not None
    argv = [sys.executable, "-m", "millwheel", *command[1].split()]
    done = subprocess.run(
        argv, cwd=tmp_path, capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr
    rows = [
        path.read_text(encoding="utf-8") for path in (tmp_path / "out" / "returned").glob("*.jsonl")
    ]
    assert "".join(rows).split() == [said[1]]


@each_page
def test_every_link_leads_somewhere(page: Path) -> None:
    for link in _LINK.findall(page.read_text(encoding="utf-8")):
        if link.startswith("https://"):
            continue
        path, _, anchor = link.partition("#")
        target = page.parent / path if path else page
        assert target.exists(), f"{page.name} links to {link}, which is not there"
        assert not anchor or anchor in _anchors(target), (
            f"{page.name} links to {link}, which has no such heading"
        )


@each_page
def test_links_to_files_have_their_names(page: Path) -> None:
    for name, path in re.findall(
        r"\[`([\w/]+\.py)`\]\(([^)#]+\.py)\)", page.read_text(encoding="utf-8")
    ):
        assert f"/{path}".endswith(f"/{name}"), f"{page.name} calls {path} {name}"


def test_every_page_that_the_code_names_exists() -> None:
    for path in CODE:
        for name, anchor in _PAGE.findall(path.read_text(encoding="utf-8")):
            page = REPO / (name.removesuffix(".md") + ".md")
            assert page.is_file(), f"{path.relative_to(REPO)} names {name}, which is not there"
            assert not anchor or anchor in _anchors(page), (
                f"{path.relative_to(REPO)} names {name}#{anchor}"
            )


def test_the_tour_stays_short_and_leads_to_every_page_of_the_design() -> None:
    tour = (REPO / "ARCHITECTURE.md").read_text(encoding="utf-8")
    index = (REPO / "docs" / "design" / "README.md").read_text(encoding="utf-8")
    # The table of layers grows with the code.
    own = re.sub("<!-- layers -->.*?<!-- end of", "", tour, flags=re.DOTALL)
    assert len(own.splitlines()) <= 220
    for page in (REPO / "docs" / "design").glob("*.md"):
        assert f"(docs/design/{page.name})" in tour or f"(docs/design/{page.name}#" in tour, (
            page.name
        )
        assert f"({page.name})" in index or page.name == "README.md", page.name


@each_page
def test_every_command_exists(page: Path) -> None:
    commands = typer.main.get_command(app).commands  # type: ignore[attr-defined]
    for name, rest in _COMMAND.findall(
        "\n".join(_FENCED.findall(page.read_text(encoding="utf-8")))
    ):
        assert name in commands, f"{page.name} names a command {name}"
        command = getattr(commands[name], "commands", {}).get(
            (rest.split() or [""])[0], commands[name]
        )
        options = {
            option for param in command.params for option in (*param.opts, *param.secondary_opts)
        }
        assert set(re.findall(r"(?<![\w-])--[\w-]+", rest.partition(" #")[0])) <= options, (
            f"{page.name}: {name}{rest}"
        )


@each_page
def test_every_file_and_every_test_that_is_named_exists(page: Path) -> None:
    for name, test in _PATH.findall(page.read_text(encoding="utf-8")):
        assert (REPO / name).is_file(), f"{page.name} names {name}, which is not there"
        assert not test or f"def {test}(" in (REPO / name).read_text(encoding="utf-8"), (
            f"no {name}::{test}"
        )


def _defined(path: Path) -> set[str]:
    """Functions and classes of a file, and the methods of its classes as ``Class.method``."""
    found = set()
    for node in ast.parse(path.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            found.add(node.name)
            inner = node.body if isinstance(node, ast.ClassDef) else []
            found |= {
                f"{node.name}.{method.name}"
                for method in inner
                if isinstance(method, ast.FunctionDef)
            }
    return found


def test_each_question_of_a_newcomer_is_answered_by_files_and_functions_that_exist() -> None:
    page = (REPO / "CONTRIBUTING.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| ([^|]+\?) \| (.*) \|$", page, re.MULTILINE)
    assert len(rows) >= 12
    for question, answer in rows:
        answers = _ANSWER.findall(answer)
        assert 1 <= len(answers) <= 2, question
        for name, symbol in answers:
            assert (REPO / name).is_file(), f"{question} {name} is not there"
            assert not symbol or symbol in _defined(REPO / name), (
                f"{question} {name} has no {symbol}"
            )


def test_each_fault_names_what_shows_it() -> None:
    page = (REPO / "docs" / "failures.md").read_text(encoding="utf-8")
    rows = [row for table in _SHOWN.findall(page) for row in table.splitlines()]
    assert len(rows) > 40
    for row in rows:
        shown = row.split(" | ")[-1]
        assert set(re.findall(r"\bsim:([\w-]+)", shown)) <= ALL_FAULTS, row
        assert _PATH.search(shown) or re.match(r"sim\b", shown), f"nothing shows: {row}"


def test_the_page_lists_the_aggregates_as_they_say_of_themselves() -> None:
    page = aggregate_table.PAGE.read_text(encoding="utf-8")
    assert page == aggregate_table.page_with(aggregate_table.table()), (
        "run `python -m tests.aggregate_table --write`"
    )


def test_the_page_lists_the_functions_as_they_say_of_themselves() -> None:
    page = function_tables.PAGE.read_text(encoding="utf-8")
    assert page == function_tables.page_with(function_tables.tables()), (
        "run `python -m tests.function_tables --write`"
    )


def test_the_table_of_the_architecture_shows_every_layer() -> None:
    assert rooms.PLACE in rooms.page(), "the docs site has the map of rooms there"
    assert rooms.PAGE.read_text(encoding="utf-8") == rooms.page(), (
        "run `python -m tests.rooms --write`"
    )


def test_every_word_has_one_entry_in_the_glossary() -> None:
    page = (REPO / "GLOSSARY.md").read_text(encoding="utf-8")
    words = re.findall(r"^- \*\*(.+?)\*\*[:,]", page, re.MULTILINE)
    assert len(words) > 30
    assert sorted(set(words)) == sorted(words)
    assert words == sorted(words, key=str.lower)


@pytest.mark.parametrize(
    ("pages", "most"),
    [
        # All pages in one day of reading, at 200 words a minute.
        (("*.md", "docs/*.md", "docs/*/*.md"), 100_000),
        # A page that has more is searched, not read.
        (("docs/performance.md",), 4_000),
        (("docs/skew.md",), 2_000),
    ],
)
def test_pages_can_be_read(pages: tuple[str, ...], most: int) -> None:
    found = [path for pattern in pages for path in REPO.glob(pattern)]
    words = {
        path.relative_to(REPO).as_posix(): len(path.read_text(encoding="utf-8").split())
        for path in found
    }
    longest = sorted(words, key=words.__getitem__)[-5:]
    assert 0 < sum(words.values()) <= most, f"say it shorter, or once; the longest are {longest}"
