"""The dashboard in a real browser: what it shows is what a plain count over the log says, and it
follows the log."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.servers.chromium import browser
from tests.slow.runs import Run

pytestmark = pytest.mark.slow

HERE = Path(__file__).parent
RECORDS, WAIT_MS = 6_000, 60_000


@dataclass(frozen=True)
class Served:
    """A gateway with the dashboard, the log, and a moment behind all its records."""

    url: str
    token: str
    log: Path
    end_us: int

    def counted(self, ad: int, start_us: int, end_us: int) -> dict[str, int]:
        """Impressions and clicks of an ad, each event once."""
        events = {
            each["event_id"]: each for each in map(json.loads, self.log.read_text().splitlines())
        }
        mine = [
            e["type"]
            for e in events.values()
            if e["ad_id"] == ad and start_us <= 1_000 * e["ts"] < end_us
        ]
        return {"impressions": mine.count("impression"), "clicks": mine.count("click")}


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    folder = tmp_path_factory.mktemp("dashboard")
    log = folder / "events.jsonl"
    words = [
        sys.executable,
        HERE / "live.py",
        "--out",
        log,
        "--records",
        str(RECORDS),
        "--behind",
        "65m",
    ]
    subprocess.run(words, check=True, timeout=60)
    run = Run(
        HERE / "pipeline.yaml", folder, params={"input": str(log)}, more=("--query-port", "0")
    ).start()
    gateway = None
    try:
        _await(lambda: (run.root / "run.json").exists() or run.process.poll() is not None)
        serve = [
            "-m",
            "millwheel",
            "serve",
            str(run.root),
            "--port",
            "0",
            "--pages",
            str(HERE / "page"),
        ]
        gateway = subprocess.Popen([sys.executable, *serve], stdout=subprocess.PIPE, text=True)
        assert gateway.stdout is not None
        url, _, token = (
            gateway.stdout.readline().removeprefix("Serving ").strip().partition("/#token=")
        )
        end_us = (
            1_000 * max(json.loads(line)["ts"] for line in log.read_text().splitlines()) + 1_000
        )
        found = Served(url, token, log, end_us)
        _await(lambda: _applied(found))
        yield found
    finally:
        if gateway is not None:
            gateway.kill()
            gateway.communicate()
        run.end()
        run.wait()


def _await(so: Callable[[], bool], within_s: float = 60.0) -> None:
    end = time.monotonic() + within_s
    while not so():
        assert time.monotonic() < end, "it did not happen in time"
        time.sleep(0.05)


def _applied(served: Served) -> bool:
    """Whether the pipeline has come to the end of the log."""
    asked = {
        "indicator": "ads",
        "key": 0,
        "window": "2h",
        "until": served.end_us,
        "deadline_ms": 5_000,
    }
    reply = httpx.get(
        f"{served.url}/v1/query",
        params=asked,
        timeout=20,
        headers={"authorization": f"Bearer {served.token}"},
    )
    values = reply.json().get("values", {})
    return {name: values.get(name) for name in ("impressions", "clicks")} == served.counted(
        0, 0, served.end_us
    )


@pytest.fixture(scope="module")
def chromium() -> Iterator[Any]:
    with browser() as started:
        yield started


def shown(page: Any, card: str) -> str:
    return str(page.locator(f"#card-{card} b").text_content())


def right(served: Served, page: Any, ad: int) -> None:
    """The cards are those of the span that the page names."""
    span = [int(page.locator("#about").get_attribute(f"data-{edge}")) for edge in ("start", "end")]
    values = served.counted(ad, *span)
    assert shown(page, "impressions") == f"{values['impressions']:,}"
    assert shown(page, "clicks") == f"{values['clicks']:,}"
    ratio = (
        f"{100 * values['clicks'] / values['impressions']:.2f} %" if values["impressions"] else "–"
    )
    assert shown(page, "ctr") == ratio


def test_any_ad_and_any_window_is_shown_as_the_log_has_it(served: Served, chromium: Any) -> None:
    page = chromium.new_page()
    asked: list[str] = []
    problems: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    page.on("pageerror", lambda error: problems.append(str(error)))
    page.goto(f"{served.url}/?ad=0&window=1h&at={served.end_us}#token={served.token}")
    page.wait_for_selector(".curve", timeout=WAIT_MS)
    right(served, page, 0)
    for change, ad in (
        (lambda: _fill(page, "#ad", "3"), 3),
        (lambda: page.click("[data-window='15m']"), 3),
    ):
        before = page.locator("#about").text_content(), shown(page, "impressions")
        change()
        page.wait_for_function(_CHANGED, arg=list(before), timeout=WAIT_MS)
        right(served, page, ad)
    page.click("#card-clicks")
    _fill(page, "#any", "soon")
    assert "no window" in page.locator("#problem").text_content()
    assert not problems
    # no request leaves this machine
    assert all(url.startswith((served.url, "data:")) for url in asked)


def test_the_chart_follows_the_log(served: Served, chromium: Any) -> None:
    page = chromium.new_page()
    page.goto(f"{served.url}/?ad=0&window=5m#token={served.token}")
    # a flat line is invisible to it
    page.wait_for_selector(".curve", state="attached", timeout=WAIT_MS)
    assert shown(page, "impressions") == "0"  # the log ended before
    now_ms = time.time_ns() // 1_000_000
    more = [
        {"event_id": f"new{n}", "ad_id": 0, "uid": n, "type": "impression", "cost": 0.1}
        for n in range(7)
    ]
    with served.log.open("a") as log:
        log.writelines(json.dumps({**each, "ts": now_ms}) + "\n" for each in more)
    page.wait_for_function(
        "() => document.querySelector('#card-impressions b').textContent === '7'", timeout=WAIT_MS
    )


_CHANGED = """before => before[0] !== document.getElementById('about').textContent
    && before[1] !== document.querySelector('#card-impressions b').textContent"""


def _fill(page: Any, field: str, text: str) -> None:
    page.fill(field, text)
    page.press(field, "Enter")
