"""The docs site: built strictly, every link and anchor of it leads somewhere, and no page asks
another server."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urldefrag

import pytest

from tests import rooms
from tests.servers.chromium import browser

pytestmark = pytest.mark.slow

SETTINGS = rooms.HOUSE / "docs" / "site" / "mkdocs.yml"
PARTS = [
    "Start",
    "Tutorial",
    "How to",
    "Reference",
    "Concepts",
    "Comparison",
    "Benchmarks",
    "Versions",
]


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    # Not --quiet: it silences what --strict counts.
    build = [
        sys.executable,
        "-m",
        "mkdocs",
        "build",
        "--strict",
        "-f",
        str(SETTINGS),
        "-d",
        str(folder),
    ]
    environment = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}
    done = subprocess.run(build, capture_output=True, text=True, timeout=250, env=environment)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "WARNING" not in done.stderr, done.stderr
    return folder


class Links(HTMLParser):
    """What a page refers to, what it loads by itself, and the places in it."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.links: set[str] = set()
        self.loads: set[str] = set()
        self.indexes: set[str] = set()
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        of = {name: value or "" for name, value in attrs}
        self.indexes |= {of.get("id", ""), of.get("name", "")}
        if tag == "a" and "href" in of:
            self.links.add(of["href"])
        elif tag == "link" and "href" in of:
            self.loads.add(of["href"])
        self.loads |= {of["src"]} if "src" in of else set()


@pytest.fixture(scope="module")
def pages(site: Path) -> dict[Path, Links]:
    found = {path: Links(path.read_text(encoding="utf-8")) for path in site.rglob("*.html")}
    assert len(found) > 60
    return found


def test_every_link_and_anchor_of_the_site_leads_somewhere(
    site: Path, pages: dict[Path, Links]
) -> None:
    broken = []
    for path, page in pages.items():
        for link in page.links | page.loads:
            name, anchor = urldefrag(link)
            if path.name == "404.html" or re.match(r"https?:|mailto:|data:", name):
                continue
            target = (path.parent / unquote(name)).resolve() if name else path
            known = pages.get(target)
            if not target.is_file() or (
                anchor and known is not None and unquote(anchor) not in known.indexes
            ):
                broken.append(f"{path.relative_to(site)}: {link}")
    assert not broken, broken


def test_no_page_asks_another_server_for_anything(site: Path, pages: dict[Path, Links]) -> None:
    for path, page in pages.items():
        assert not [each for each in page.loads if re.match(r"(https?:)?//", each)], path
    for path in site.rglob("*.css"):
        loaded = re.findall(r"@import[^;]+|url\(([^)]*)\)", path.read_text(encoding="utf-8"))
        assert not [
            each for each in loaded if "//" in each and not each.strip("'\"").startswith("data:")
        ], path


def test_a_telephone_shows_pages_without_scrolling_sideways_and_asks_nobody_else(
    site: Path,
) -> None:
    with browser() as started:
        page = started.new_page(viewport={"width": 360, "height": 780})
        asked: list[str] = []
        page.on("request", lambda request: asked.append(request.url))
        for name in (
            "index",
            "docs/concepts",
            "docs/comparison",
            "docs/tutorial/6-watch-it",
            "ARCHITECTURE",
        ):
            page.goto((site / f"{name}.html").as_uri())
            beyond = "document.documentElement.scrollWidth - document.documentElement.clientWidth"
            assert page.evaluate(beyond) <= 0, name
            broken = (
                "[...document.images].filter(image => !image.naturalWidth).map(image => image.src)"
            )
            assert not page.evaluate(broken), name
        assert not [url for url in asked if not url.startswith(("file:", "data:", "blob:"))]


def test_the_site_has_its_parts(site: Path) -> None:
    start = (site / "index.html").read_text(encoding="utf-8")
    tabs = re.findall(
        r'<li class="md-tabs__item[^"]*">\s*<a [^>]*>\s*(.*?)\s*</a>', start, re.DOTALL
    )
    assert tabs == PARTS
    architecture = (site / "ARCHITECTURE.html").read_text(encoding="utf-8")
    assert "pictures/diagrams/" in architecture
