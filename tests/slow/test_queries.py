"""A running pipeline is asked while a shard moves, a worker stands still, and one is killed: every
answer is right."""

from __future__ import annotations

import json
import random
import re
import subprocess
import sys
import time
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any

import duckdb
import httpx
import psutil
import pyarrow
import pytest
import redis
from redis.exceptions import RedisClusterException

from millwheel.core.slices.slots import slot_of_key
from tests.servers.programs import free_port
from tests.servers.redis import command
from tests.slow.runs import Run

pytestmark = pytest.mark.slow

RECORDS, KEYS, STEP_US, SLICE_US = 60_000, 40, 10_000, 10_000_000
FIRST_US = 1_700_000_000_000_000
END_US = FIRST_US + RECORDS * STEP_US
PIPELINE = """
pipeline: asked
streams:
  events:
    source: {files: {path: "${events}", format: jsonl, follow: true}}
    timestamp: {field: at, unit: us}
    fields: {at: int, key: int, cost: int, path: str}
computations:
  clicks:
    input: {events: {key: key}}
    slices: {every: 10s, keep: 30d, levels: [10s, 1m]}
    aggregate: {n: count, spend: {sum: cost}}
    standby: 1
  costly:
    input: {events: {key: key}}
    slices: {every: 10s, keep: 30d}
    aggregate: {n: {count: {where: cost > 3}}}
    standby: 1
  paths:
    input: {events: {key: path}}
    slices: {every: 1m, keep: 30d}
    aggregate: {n: count}
  seen:
    input: {events: {key: key}}
    callback: seen:Seen
  minutes:
    input: {events: {key: key}}
    window: {tumbling: 1m}
    aggregate: {n: count, spend: {sum: cost}}
    queryable: latest
    output: minute_rows
queries:
  cpc: {formula: clicks.spend / clicks.n, window: 10m}
"""

CALLBACK = """
from millwheel import Computation, MapState, ValueState

class Seen(Computation):
    count = ValueState(int, default=0)
    by_cost = MapState(int)

    def process_record(self, ctx, record):
        self.count.set(self.count.get() + 1)
        self.by_cost[str(record.value["cost"])] = self.by_cost.get(str(record.value["cost"]), 0) + 1
"""


def record(number: int) -> dict[str, Any]:
    return {
        "at": FIRST_US + number * STEP_US,
        "key": number % KEYS,
        "cost": number % 7,
        "path": f"/{number % KEYS}",
    }


def expected(key: int, start_us: int, end_us: int, upto: int) -> dict[str, int]:
    mine = [each for each in map(record, range(key, upto, KEYS)) if start_us <= each["at"] < end_us]
    return {"n": len(mine), "spend": sum(each["cost"] for each in mine)}


def until(what: Any, within_s: float = 60.0) -> Any:
    """What ``what`` returns once that is true."""
    end = time.monotonic() + within_s
    while time.monotonic() < end:
        with suppress(redis.RedisError, RedisClusterException, httpx.HTTPError, OSError):
            if found := what():
                return found
        time.sleep(0.05)
    raise AssertionError("it did not happen in time")


def test_cluster_clients_ask_a_running_pipeline_and_a_kill_makes_no_answer_wrong(
    tmp_path: Path,
) -> None:
    port, events = free_port(), tmp_path / "in"
    events.mkdir()
    lines = [json.dumps(record(number)) + "\n" for number in range(RECORDS)]
    (events / "a.jsonl").write_text("".join(lines))
    pipeline = tmp_path / "pipeline.yaml"
    pipeline.write_text(PIPELINE)
    (tmp_path / "seen.py").write_text(CALLBACK)
    run = Run(
        pipeline,
        tmp_path,
        params={"events": f"{events}/*.jsonl"},
        more=("--no-balance", "--query-port", str(port)),
    ).start()
    gateway = None
    try:
        plain = until(lambda: _connected(port, run))
        until(lambda: len(plain.execute_command("CLUSTER SLOTS")) == 2)
        client = until(lambda: clustered(port, run.token))

        def counted() -> int:
            names = [f"clicks.n:{{{key}}}:10m@{END_US}" for key in range(KEYS)]
            return sum(int(client.get(name)) for name in names)

        until(lambda: counted() == RECORDS)
        check(client)
        check_named(client, run.root)
        gateway, url = gateway_of(run.root)
        check_http(url)
        until(lambda: client.get("seen.count:{3}") == str(RECORDS // KEYS))
        check_state(client, url)
        check_windows(client, url)
        check_benchmark(port, run.token)
        check_divided(port, run)
        owners = {
            client.nodes_manager.get_node_from_slot(slot_of_key(key)).port for key in range(KEYS)
        }
        assert len(owners) == 2  # both workers answer
        check_moved(client, url, run.root)
        check_silent(url, run, port)
        victim = until(lambda: run.processes("--slot 1"))[0]
        victim.kill()
        # The gateway tries again until somebody has the shards of the dead worker.
        batch = {
            "queries": [{"name": f"clicks.n:{key}:10m@{END_US}"} for key in range(KEYS)],
            "deadline_ms": 30_000,
        }
        assert [each["values"]["n"] for each in answers_of(url, batch)] == [RECORDS // KEYS] * KEYS
        answers = 0
        while victim.is_running() or answers < 50:
            # no answer is not a wrong one
            with suppress(redis.RedisError, RedisClusterException, OSError):
                assert (
                    int(client.get(f"clicks.n:{{{answers % KEYS}}}:10m@{END_US}"))
                    == RECORDS // KEYS
                )
            answers += 1
        until(lambda: counted() == RECORDS)
        check(client)
        compare(url, 5)
        # whoever serves now knows it, too
        assert client.get(f"share:{{3}}@{END_US}") == str(share_of(3))
    finally:
        if gateway is not None:
            gateway.kill()
            gateway.communicate()
        run.end()
        run.wait()


@cache
def raw() -> Any:
    """All records, by DuckDB."""
    known = duckdb.connect()
    rows = [(each["at"], each["key"], each["cost"]) for each in map(record, range(RECORDS))]
    at, key, cost = (list(column) for column in zip(*rows, strict=True))
    known.register("given", pyarrow.table({"at_us": at, "key": key, "cost": cost}))
    known.execute("create table events as select * from given")
    return known


def compare(
    url: str, seed: int, consistency: str = "durable", deadline_ms: int = 30_000
) -> set[str]:
    """Windows of all lengths, each with another end, are what the raw records of the span that is
    covered make. Of which consistency the answers were."""
    rng, known, kinds = random.Random(seed), raw(), set()
    asked = [
        {
            "indicator": "clicks",
            "key": rng.randrange(KEYS),
            "window": rng.choice([7_000_000, 60_000_000, 333_000_000, 10**10]),
            "until": rng.randrange(FIRST_US, END_US),
            "consistency": consistency,
        }
        for _ in range(200)
    ]
    for question, answer in zip(
        asked, answers_of(url, {"queries": asked, "deadline_ms": deadline_ms}), strict=True
    ):
        assert "error" not in answer, answer
        start_us, end_us = answer["covered_start"], answer["covered_end"]
        assert start_us <= question["until"] - question["window"] < start_us + SLICE_US
        assert question["until"] <= end_us < question["until"] + SLICE_US
        (right,) = known.execute(
            "select count(*), sum(cost) from events where key = ? and at_us >= ? and at_us < ?",
            [question["key"], start_us, end_us],
        ).fetchall()
        assert (answer["values"]["n"], answer["values"]["spend"]) == (
            right[0],
            int(right[1] or 0),
        ), question
        kinds.add(answer["consistency"])
    return kinds


def check_moved(client: Any, url: str, root: Path) -> None:
    """While a shard goes to the other worker, and behind that."""
    name = f"clicks:{{3}}:10m@{END_US}"
    before = json.loads(
        client.execute_command("MW.QUERY", "clicks", 3, "WINDOW", "10m", "UNTIL", END_US)
    )
    shown = json.loads(millwheel("ranges", "show", "--root", root, "--json"))
    rows = [each for each in shown if each["shard"].startswith("clicks-")]
    owner = next(each["owner"] for each in rows if each["shard"] == before["shard"])
    other = next(each["owner"] for each in rows if each["owner"] != owner)
    millwheel("ranges", "move", before["shard"], other, "--root", root)
    until(lambda: compare(url, 1) and token_of(client) > before["token"])
    assert client.hgetall(name)["n"] == str(RECORDS // KEYS)


def token_of(client: Any) -> int:
    told = client.execute_command("MW.QUERY", "clicks", 3, "WINDOW", "10m", "UNTIL", END_US)
    token: int = json.loads(told)["token"]
    return token


def check_silent(url: str, run: Run, port: int) -> None:
    """A worker stands still, too short to be replaced: standbys answer for it, and say so. Behind
    that, it does. They have all that it committed, although nothing more has come."""
    rows = lambda: json.loads(millwheel("ranges", "show", "--root", run.root, "--json"))  # noqa: E731
    until(lambda: all(each["standby"] for each in rows() if each["shard"].startswith("cl")))

    def followed() -> bool:
        asked = [
            {"name": f"clicks.n:{key}:10m@{END_US}", "consistency": "standby"}
            for key in range(KEYS)
        ]
        found = answers_of(url, {"queries": asked})
        return all(
            each.get("consistency") == "standby" and each["values"]["n"] == RECORDS // KEYS
            for each in found
        )

    until(followed)
    assert compare(url, 2, "standby") == {"standby"}
    check_replicas(port, run.token)
    victim = run.processes("--slot 1")[0]
    victim.suspend()
    try:
        kinds = compare(url, 3, deadline_ms=1_000)  # at once
    finally:
        with suppress(psutil.NoSuchProcess):  # on a slow machine it was replaced meanwhile
            victim.resume()
    assert "standby" in kinds
    until(lambda: compare(url, 4) == {"durable"})


def check_replicas(port: int, token: str) -> None:
    """A client that reads from replicas asks owners and standbys in turn, and is told which one it
    was."""
    client = clustered(port, token, read_from_replicas=True)
    found = [
        client.hgetall(f"clicks:{{{key}}}:10m@{END_US}") for key in range(KEYS) for _ in range(2)
    ]
    assert {each["n"] for each in found} == {str(RECORDS // KEYS)}
    assert {each.get("consistency") for each in found} == {None, "standby"}
    client.close()


def check_benchmark(port: int, token: str) -> None:
    """redis-benchmark asks each worker for the slots that it has, and ends with an error at the
    first redirection."""
    *before, server = command()
    tool = str(Path(server).with_name("redis-benchmark"))
    line = [
        *before,
        tool,
        "--cluster",
        "-p",
        str(port),
        "-a",
        token,
        "-n",
        "2000",
        "-c",
        "8",
        "-r",
        "40",
        "--csv",
    ]
    done = subprocess.run(
        [*line, "GET", "paths:{tag}/__rand_int__:10m"],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "Cluster has 2 master nodes" in done.stdout
    assert re.search(r'^"GET[^"]*","\d', done.stdout, re.MULTILINE)


def share_of(key: int) -> float:
    costs = [each["cost"] for each in map(record, range(key, RECORDS, KEYS))]
    return sum(cost > 3 for cost in costs) / len(costs)


def check_named(client: Any, root: Path) -> None:
    """A query of the file, and one that is set and removed while the pipeline runs."""
    right = expected(3, END_US - 600_000_000, END_US, RECORDS)
    assert client.get(f"cpc:{{3}}@{END_US}") == str(right["spend"] / right["n"])
    assert client.hgetall(f"cpc:3:10m@{END_US}")["covered_end"] == str(END_US)
    with pytest.raises(redis.ResponseError, match="no indicator 'share'"):
        client.get("share:{3}")
    millwheel(
        "queries", "set", root, "share", "--formula", "costly.n / clicks.n", "--window", "10m"
    )
    assert client.get(f"share:{{3}}@{END_US}") == str(share_of(3))
    assert "share: costly.n / clicks.n, of 10m" in millwheel("queries", "list", root)
    millwheel("queries", "remove", root, "cpc")
    with pytest.raises(redis.ResponseError, match="no indicator 'cpc'"):
        client.get("cpc:{3}")


HTTP = httpx.Client()
"""Shows the token that the gateway prints with its address."""


def gateway_of(root: Path) -> tuple[subprocess.Popen[str], str]:
    """A gateway that is ready, and its address."""
    words = [sys.executable, "-m", "millwheel", "serve", str(root), "--port", "0"]
    gateway = subprocess.Popen(words, stdout=subprocess.PIPE, text=True)
    assert gateway.stdout is not None
    url, _, shown = gateway.stdout.readline().removeprefix("Serving ").strip().partition("/#token=")
    HTTP.headers["authorization"] = f"Bearer {shown}"
    until(lambda: HTTP.get(f"{url}/readyz").status_code == 200)
    return gateway, url


def answers_of(url: str, batch: dict[str, Any]) -> Any:
    reply = HTTP.post(f"{url}/v1/query", json=batch, timeout=40)
    assert reply.status_code == 200, reply.text
    return reply.json()["answers"]


def check_http(url: str) -> None:
    """The same questions by HTTP, one by one and together, with what is wrong among them."""
    right = expected(3, END_US - 600_000_000, END_US, RECORDS)
    one = HTTP.get(
        f"{url}/v1/query",
        params={"indicator": "clicks", "key": 3, "window": "10m", "until": END_US},
    )
    assert one.json()["values"] == right
    asked = {"key": 3, "window": "10m", "until": END_US}
    questions = [
        {"formula": "clicks.spend / clicks.n"},
        {"indicator": "share"},
        {"indicator": "cpc"},
    ]
    values, share, unknown = answers_of(url, {"queries": [{**asked, **each} for each in questions]})
    assert values["values"] == {"value": right["spend"] / right["n"]}
    assert share["values"] == {"share": share_of(3)}
    assert unknown["error"]["code"] == "unknown_indicator"
    assert HTTP.get(f"{url}/v1/query?indicator=clicks&key=3&window=40d").status_code == 400


def check_state(client: Any, url: str) -> None:
    """What a callback keeps has the same names by the Redis protocol and by HTTP."""
    costs = [each["cost"] for each in map(record, range(3, RECORDS, KEYS))]
    by_cost = {str(cost): costs.count(cost) for cost in costs}
    assert json.loads(client.hgetall("seen:{3}")["by_cost"]) == by_cost
    found = HTTP.get(f"{url}/v1/query?indicator=seen&key=3").json()
    assert found["values"] == {"count": len(costs), "by_cost": by_cost}
    with pytest.raises(redis.ResponseError, match="seen has no 'pages'"):
        client.get("seen.pages:{3}")


def check_windows(client: Any, url: str) -> None:
    """The newest result of a window, and those that are open, each what the raw records of its span
    say."""
    fired = until(lambda: client.hgetall("minutes:{3}"))
    start_us, end_us = int(fired["covered_start"]), int(fired["covered_end"])
    assert end_us - start_us == 60_000_000
    right = expected(3, start_us, end_us, RECORDS)
    assert ({name: int(fired[name]) for name in right}, fired["complete"]) == (right, "1")
    assert int(client.get(f"minutes.n:3@{start_us}")) == right["n"]
    asked = HTTP.get(f"{url}/v1/query?indicator=minutes&key=3&mode=open").json()
    for window in asked["values"]["windows"]:
        span = window.pop("window_start"), window.pop("window_end")
        assert window == expected(3, *span, RECORDS)
    refused = HTTP.get(f"{url}/v1/query?indicator=minutes&key=3&window=1h").json()
    assert refused["error"]["code"] == "bad_window"


def check_divided(port: int, run: Run) -> None:
    """The newest results of windows go with their keys when a shard is split, and when its halves
    are merged."""
    root, client = run.root, clustered(port, run.token)  # it learns where windows are, too

    def newest() -> list[int]:
        """When the newest window of each key began: the last one is over once the file has been
        silent for a while."""
        found = []
        for key in range(KEYS):
            answer = client.hgetall(f"minutes:{{{key}}}")
            start_us = int(answer["covered_start"])
            right = expected(key, start_us, start_us + 60_000_000, RECORDS)
            assert {name: int(answer[name]) for name in right} == right
            found.append(start_us)
        return found

    def none_lost(before: list[int]) -> list[int]:
        after = until(newest)
        assert all(now >= then for now, then in zip(after, before, strict=True))
        return list(after)

    def names() -> set[str]:
        rows = json.loads(millwheel("ranges", "show", "--root", root, "--json"))
        return {
            each["shard"] for each in rows if each["shard"].startswith("minutes-") and each["owner"]
        }

    latest, before = newest(), names()
    shard = min(before)
    millwheel("ranges", "split", shard, "--root", root)
    halves = sorted(until(lambda: len(names()) == len(before) + 1 and names() - before))
    latest = none_lost(latest)
    millwheel("ranges", "merge", *halves, "--root", root)
    until(lambda: len(names()) == len(before) and not names() & {shard, *halves})
    none_lost(latest)


def millwheel(*words: object) -> str:
    done = subprocess.run(
        [sys.executable, "-m", "millwheel", *map(str, words)],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def clustered(port: int, token: str, **more: Any) -> Any:
    return redis.RedisCluster(
        host="127.0.0.1", port=port, password=token, decode_responses=True, **more
    )


def _connected(port: int, run: Run) -> Any:
    client = redis.Redis(port=port, password=run.token, decode_responses=True)
    return client if client.ping() else None


def check(client: Any) -> None:
    """Windows that change between two queries, by all commands, with braces and without."""
    for key, minutes in ((3, 1), (3, 10), (17, 3), (25, 7)):
        until_us = END_US - 5_000_000  # in the middle of a slice
        name = f"{key}:{minutes}m@{until_us}"
        found = client.hgetall(f"clicks:{name}")
        span = int(found["covered_start"]), int(found["covered_end"])
        assert 0 <= until_us - minutes * 60_000_000 - span[0] < 10_000_000
        right = expected(key, *span, RECORDS)
        assert {"n": int(found["n"]), "spend": int(found["spend"])} == right
        assert client.get(f"clicks.spend:{{{key}}}:{minutes}m@{until_us}") == str(right["spend"])
        asked = json.loads(
            client.execute_command(
                "MW.QUERY", "clicks", key, "WINDOW", f"{minutes}m", "UNTIL", until_us
            )
        )
        assert asked["values"] == right
        assert asked["consistency"] == "durable"
    with pytest.raises(redis.ResponseError, match="keys of clicks are whole numbers"):
        client.get("clicks:abc:3h")
