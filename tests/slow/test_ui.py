"""The page of a real run in a real browser: graph, a kill seen on it, hostile records, replay of a
dead letter."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import httpx
import psutil
import pytest

from tests.servers.chromium import browser
from tests.servers.programs import free_port
from tests.slow.runs import Run
from tests.slow.waits import until

pytestmark = pytest.mark.slow

WAIT_MS = 30_000
HOSTILE = "<img src=x onerror=alert(1)>"
PIPELINE = """
pipeline: orders
streams:
  orders:
    source: {generator: {rate: 300, factory: "checks:order", start: "2026-11-23T13:40:00Z"}}
    timestamp: ts
  per_shop: {}
  large: {}
computations:
  revenue: {input: {orders: {key: shop}}, output: per_shop, window: {tumbling: 10s},
    aggregate: {total: {sum: amount}}}
  check: {input: {orders: {key: shop}}, output: large, callback: "checks:Check",
    on_error: dead_letter}
sinks:
  per_shop: {files: {path: "${out}/shops", format: jsonl}}
  large: {files: {path: "${out}/large", format: jsonl}}
"""
CODE = f"""
import os
from millwheel import Computation

SHOPS = ["berlin", {HOSTILE!r}]


def order(index, partition):
    return {{"ts": 1_795_441_200_000_000 + index * 3_333, "shop": SHOPS[index % 2],
      "amount": index % 100,
            "api_token": "hidden-value"}}


class Check(Computation):
    def process_record(self, ctx, record):
        if record.value["amount"] == 1 and not os.path.exists(__file__ + ".mended"):
            raise ValueError("odd amount of " + record.key)
        if record.value["amount"] > 90:
            ctx.produce("large", record.value)
"""


@dataclass
class Shown:
    """A run with its page, and a tab of the browser that has it open."""

    run: Run
    url: str
    browser: Any
    problems: list[str] = field(default_factory=list)

    def open(self, url: str = "", **looks: Any) -> Any:
        """A tab. What goes wrong in it, or goes elsewhere, is a problem."""
        tab = self.browser.new_context(**looks).new_page()
        here = url or self.url
        tab.set_default_timeout(WAIT_MS)
        tab.on("console", lambda said: said.type == "error" and self.problems.append(said.text))
        tab.on("pageerror", lambda error: self.problems.append(str(error)))
        tab.on("dialog", lambda dialog: self.problems.append(dialog.message))
        asked = here.split("#")[0]
        tab.on(
            "request",
            lambda request: request.url.startswith(asked) or self.problems.append(request.url),
        )
        tab.goto(here)
        tab.wait_for_selector("[data-name='check']")
        return tab

    def workers(self) -> list[psutil.Process]:
        children = psutil.Process(self.run.process.pid).children(recursive=True)
        return [each for each in children if "millwheel.engine.workers" in each.cmdline()]


@pytest.fixture(scope="module")
def shown(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shown]:
    folder = tmp_path_factory.mktemp("ui")
    (folder / "p.yaml").write_text(PIPELINE)
    (folder / "checks.py").write_text(CODE)
    port = free_port()
    run = Run(
        folder / "p.yaml", folder, params={"out": str(folder / "out")}, more=("--ui", str(port))
    ).start()
    Run.started.remove(run)  # all tests of this file use it
    url = f"http://127.0.0.1:{port}/"

    def flows() -> bool:
        assert run.process.poll() is None, (folder / "said.txt").read_text()
        try:
            return bool(httpx.get(f"{url}api/live", headers=run.bearer).json()["records_in"])
        except (httpx.HTTPError, OSError):  # not there yet
            return False

    try:
        until(flows)
        with browser() as chromium:
            yield Shown(run, f"{url}#token={run.token}", chromium)
    finally:
        run.end()
        run.wait()


def test_the_graph_has_figures_and_can_be_walked_by_keys(shown: Shown) -> None:
    tab = shown.open()
    assert tab.title() == "orders – MillWheel"
    until(
        lambda: tab.evaluate(
            "document.querySelector(\"[data-name='check'] .rate\").textContent.match(/in [1-9]/)"
        )
    )
    assert [each.get_attribute("data-name") for each in tab.query_selector_all(".node")] == [
        "source.orders", "revenue", "check", "sink.per_shop", "sink.large",
    ]  # fmt: skip
    tab.keyboard.press("Tab")
    assert tab.evaluate("document.activeElement.className") == "skip"
    tab.focus("[data-name='source.orders']")
    tab.keyboard.press("ArrowDown")
    first = tab.evaluate("document.activeElement.dataset.name")
    assert first in ("revenue", "check")
    assert first in tab.inner_text("#node h3")
    tab.keyboard.press("ArrowDown")
    assert tab.inner_text("#node h3").startswith("sink.")
    # 4 shards, 2 workers
    until(lambda: tab.evaluate("document.querySelectorAll('#node tbody tr').length >= 6"))
    assert "Its watermark is held by" in tab.inner_text("#node")
    tab.focus("#tab-timeline")
    tab.keyboard.press("ArrowRight")
    assert tab.evaluate("document.activeElement.id") == "tab-letters"
    assert shown.problems == []
    tab.close()


def test_it_is_readable_in_the_dark_and_on_a_telephone(shown: Shown) -> None:
    ground = "getComputedStyle(document.body).backgroundColor"
    tab = shown.open(viewport={"width": 360, "height": 740}, color_scheme="dark")
    dark = tab.evaluate(ground)
    assert sum(map(int, re.findall(r"\d+", dark)[:3])) < 120
    for name in ("timeline", "letters", "rows", "savepoints", "settings"):
        tab.click(f"#tab-{name}")
        until(lambda: tab.evaluate("document.getElementById('panel').textContent !== '…'"))
        assert tab.evaluate("document.documentElement.scrollWidth") <= 360, name
    tab.click("#theme")
    light = tab.evaluate(ground)
    assert light != dark
    tab.reload()
    assert tab.evaluate(ground) == light
    assert shown.problems == []
    tab.close()


def test_rows_are_live_text_without_secrets(shown: Shown) -> None:
    tab = shown.open()
    tab.click("#tab-rows")
    tab.wait_for_selector("#panel td.wide")
    text = tab.inner_text("#panel")
    assert '"api_token":"***"' in text
    assert "hidden-value" not in tab.content()
    until(
        lambda: tab.evaluate(
            f"document.getElementById('panel').textContent.includes({json.dumps(HOSTILE)})"
        )
    )
    assert shown.problems == []
    tab.close()


def test_a_killed_worker_is_seen_with_its_recovery(shown: Shown) -> None:
    tab = shown.open()
    before = [each.pid for each in shown.workers()]
    shown.workers()[0].kill()
    until(
        lambda: tab.evaluate(
            "document.querySelector('#panel .gone') && document.querySelector('#panel .recovered')"
        )
    )
    said = tab.inner_text("#panel")
    assert re.search(r"worker [01] is gone \(w[01]-\w+\); \d+ shards wait for another owner", said)
    assert re.search(r"\d+ shards of w[01]-\w+ went to w\S+ within \d+\.\d s", said)
    until(lambda: len(shown.workers()) == 2 and [each.pid for each in shown.workers()] != before)
    assert shown.problems == []
    tab.close()


def test_dead_letters_are_replayed_by_who_has_the_token(shown: Shown) -> None:
    tab = shown.open()
    tab.click("#tab-letters")
    tab.wait_for_selector("#panel article")
    tab.click("#panel summary")
    assert f"ValueError: odd amount of {HOSTILE}" in tab.inner_text("#panel")
    tab.click("#panel article > button")
    tab.wait_for_selector("text=This page is read-only")
    tab.close()
    (shown.run.root / "pipeline" / "checks.py.mended").touch()
    words = ["-m", "millwheel", "ui", str(shown.run.root), "--port", "0", "--writable"]
    ui = subprocess.Popen([sys.executable, *words], stdout=subprocess.PIPE, text=True)
    try:
        assert ui.stdout is not None
        address = ui.stdout.readline().removeprefix("The page is at ").strip()
        page, token = address.split("#token=")
        # with it one may look, but not change anything
        tab = shown.open(f"{page}#token={shown.run.token}")
        tab.click("#tab-letters")
        tab.click("#panel article > button")
        for given in ("wrong", token):
            tab.wait_for_selector("dialog[open] p:has-text('show the token')")
            tab.fill("dialog[open] input", given)
            tab.keyboard.press("Enter")
        tab.wait_for_selector("#panel [role=status]:has-text('tried again, now')")
        tab.close()
        until(
            lambda: httpx.get(f"{page}api/letters", headers=shown.run.bearer).json()["groups"][0][
                "replayed"
            ]
        )
        tab = shown.open(address)
        assert tab.url == page  # the token does not stay in the address
        assert tab.evaluate("sessionStorage.getItem('millwheel-token')") == token
        tab.close()
    finally:
        ui.kill()
        ui.communicate()
    assert len(shown.problems) == 2  # the browser tells of the wrong tokens
    assert all("401" in refused for refused in shown.problems)
