"""Makes the site from the pages as they lie in the repository, so that one text serves readers of
both.

Pages keep their paths, and with them their links. A link to a file that is not a page of the site
becomes plain text. Some tables are only in the site: the numbers of the code that tune something,
which are a page of their own, what each place of a pipeline does with unexpected values, what each
folder of the code is for, the metrics, and the figures of the benchmark.
"""

from __future__ import annotations

import hashlib
import posixpath
import re
import sys
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files

HOUSE = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(HOUSE))

from bench import report  # noqa: E402
from tests import metrics, rooms, tuning  # noqa: E402
from tests.poison import matrix  # noqa: E402

PAGES = (
    "*.md",
    "docs/*.md",
    "docs/design/*.md",
    "docs/tutorial/*.md",
    "deploy/*.md",
    "deploy/observability/*.md",
)
MORE = (
    "examples/*/README.md",
    "docs/pictures/*.svg",
    "docs/pictures/*.png",
    "docs/pictures/*/*.svg",
    "docs/pictures/*/*.png",
    "docs/site/*.css",
)
START = "docs/README.md"
_LINK = re.compile(r"(?<!!)\[((?:[^\[\]]|\[[^\]]*\])*)\]\((?!https?:|#)([^)#\s]+)(#[^)\s]*)?\)")
DIAGRAMS = HOUSE / "docs" / "pictures" / "diagrams"
DIAGRAM = re.compile(r"^```mermaid\n(.*?)^```$", re.DOTALL | re.MULTILINE)
_FENCE = re.compile(r"(^ *```.*?^ *```$)", re.DOTALL | re.MULTILINE)


def on_files(files: Files, config: Any) -> Files:
    """All pages, and what they show, under the paths that they have in the repository."""
    made = Files([file for file in files if file.src_dir != config.docs_dir])  # the theme's
    for path in sorted({path for pattern in (*PAGES, *MORE) for path in HOUSE.glob(pattern)}):
        name = path.relative_to(HOUSE).as_posix()
        made.append(File.generated(config, name, abs_src_path=str(path)))
    readme = made.get_file_from_path("README.md")
    readme.dest_uri = readme.url = "README.html"  # the start page is the index
    start = (HOUSE / START).read_text(encoding="utf-8")
    made.append(File.generated(config, "index.md", content=_moved(start, "docs")))
    made.remove(made.get_file_from_path(START))
    made.append(File.generated(config, f"docs/{tuning.NAME}", content=tuning.page()))
    return made


def on_page_markdown(markdown: str, page: Any, config: Any, files: Files) -> str:
    """The text with the links that the site has."""
    folder = posixpath.dirname(page.file.src_uri)
    markdown = markdown.replace(matrix.PLACE, matrix.table())
    markdown = markdown.replace(rooms.PLACE, rooms.table())
    markdown = report.with_tables(markdown.replace(metrics.PLACE, metrics.tables()))
    markdown = DIAGRAM.sub(lambda diagram: _drawn(diagram, folder), markdown)
    parts = _FENCE.split(markdown)
    parts[::2] = [_LINK.sub(lambda link: _linked(link, folder, files), part) for part in parts[::2]]
    return "".join(parts)


def picture_of(diagram: str) -> Path:
    """The drawing of the text of a diagram, which `diagrams.py` makes."""
    return DIAGRAMS / f"{hashlib.sha256(diagram.encode()).hexdigest()[:12]}.svg"


def _drawn(diagram: re.Match[str], folder: str) -> str:
    picture = picture_of(diagram[1])
    if not picture.exists():
        return diagram[0]
    name = posixpath.relpath(picture.relative_to(HOUSE).as_posix(), folder or ".")
    return f"![diagram]({name}){{.diagram}}"


def _linked(link: re.Match[str], folder: str, files: Files) -> str:
    target = posixpath.normpath(posixpath.join(folder, link[2]))
    if target == START:
        return link[0].replace(link[2], posixpath.relpath("index.md", folder or "."))
    return link[0] if files.get_file_from_path(target) is not None else link[1]


def _moved(markdown: str, folder: str) -> str:
    """A page of a folder, as it reads one level up."""
    return _LINK.sub(
        lambda link: (
            f"[{link[1]}]({posixpath.normpath(posixpath.join(folder, link[2]))}{link[3] or ''})"
        ),
        markdown,
    )
