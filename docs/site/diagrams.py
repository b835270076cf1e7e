"""``python docs/site/diagrams.py MERMAID_JS``: draws the Mermaid diagrams of the pages anew, for
the site.

The site shows them as pictures: Mermaid in the browser would be three megabytes from another
server. MERMAID_JS is ``dist/mermaid.min.js`` of the npm package; Debian's chromium draws. A diagram
without a picture stays text.
"""

from __future__ import annotations

import re
import sys

from hook import DIAGRAM, DIAGRAMS, HOUSE, PAGES, picture_of
from playwright.sync_api import sync_playwright

_DRAW = """async ([name, text]) => {
  const options = {startOnLoad: false, theme: "neutral", htmlLabels: false,
    flowchart: {htmlLabels: false}};
  mermaid.initialize({...options, fontFamily: "system-ui, Helvetica, Arial, sans-serif"});
  return (await mermaid.render(name, text)).svg;
}"""


def main(library: str) -> None:
    """One file for each diagram, and none for those that are gone."""
    pages = [path.read_text(encoding="utf-8") for pattern in PAGES for path in HOUSE.glob(pattern)]
    found = {picture_of(text): text for page in pages for text in DIAGRAM.findall(page)}
    DIAGRAMS.mkdir(exist_ok=True)
    for gone in set(DIAGRAMS.glob("*.svg")) - set(found):
        gone.unlink()
    with sync_playwright() as play:
        browser = play.chromium.launch(executable_path="/usr/bin/chromium", args=["--no-sandbox"])
        page = browser.new_page()
        page.set_content("<body></body>")
        page.add_script_tag(path=library)
        for path, text in found.items():
            # labels are text: HTML is not drawn in an image everywhere
            plain = re.sub("</?b>", "", text)
            svg = page.evaluate(_DRAW, [f"d{path.stem}", plain])
            path.write_text(svg.replace("<br>", "<br/>") + "\n", encoding="utf-8")
        browser.close()


if __name__ == "__main__":
    main(sys.argv[1])
