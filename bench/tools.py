"""The tools of the benchmark, each with options of its own: what they measure, and the module that
does it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Tool:
    """``title`` says what it measures."""

    title: str
    module: str


def _tool(name: str, title: str, module: str = "") -> tuple[str, Tool]:
    return name, Tool(title, f"bench.{module or name}")


TOOLS = dict(
    (
        _tool("report", "tables and plots of docs/performance.md from the figures"),
        _tool("profile", "where a microsecond goes in a part"),
        _tool("key_windows", "key windows beside native ones: the table of docs/windows.md"),
        _tool("rivals", "key windows and their rivals: native, raw, bucketed, as published"),
        _tool("late_days", "two days of lateness: state, time and corrections, beside less"),
        _tool(
            "S",
            "groupings under skew, simulated: throughput and latency by parallelism and over time",
            "skew",
        ),
        _tool(
            "hot_key",
            "unequal keys beside even ones: one with 90 % of the records, or Zipf; divided too",
        ),
        _tool("hot_join", "a join of all records of one key: pairs per second, and memory"),
        _tool("unequal", "groupings on two workers, one of which runs a quarter of the time"),
        _tool("dividing", "what it costs a source to choose the instances of keys"),
        _tool(
            "Q",
            "the published experiments with queries, beside Redis itself (--only Q1 Q4)",
            "query_figures",
        ),
        _tool("query_faults", "queries while workers fail"),
        _tool("query_storm", "what queries cost the stream"),
        _tool("query_keys", "ten million keys at rest: memory, disk, and how fast they answer"),
        _tool("uv", "unique visitors: text, dictionary and bitmaps, and a sketch side by side"),
        _tool("uv_opened", "one shard of a dictionary: a new device, a known one, opening it"),
        _tool(
            "failover", "how long it takes: workers, master, injector and hosts, killed and stopped"
        ),
        _tool("availability", "how available results are while processes or hosts are killed"),
        _tool(
            "constant_kills",
            "13 computations and 15 sinks while a worker is killed every five seconds",
        ),
        _tool("soak", "a followed file for as long as one likes: memory, and size of the root"),
        _tool(
            "scale",
            "A, B and many nodes on 1 to 16 workers: what does not grow with the machine",
            "scaling",
        ),
        _tool(
            "cluster",
            "1,000 workers and 100,000 shards against master and injector, without records",
        ),
        _tool("nodes", "what a part costs: pipelines of 1 and of 32 nodes"),
        _tool("start", "start to end of three records"),
        _tool("pace", "what latency: greedy, balanced, 2ms and 20ms cost and save"),
        _tool(
            "step",
            "the CPU of a step of few records, two loops in one process: also on busy machines",
        ),
        _tool(
            "cliff",
            "one step beside the plain pipeline: each kind of window, key, aggregate, input",
        ),
        _tool(
            "nexmark",
            "Nexmark's queries as pipelines without Python, judged by DuckDB",
            "nexmark.tool",
        ),
        _tool(
            "nexmark-kills",
            "the same queries while processes are killed, judged by DuckDB",
            "nexmark.kills",
        ),
        _tool(
            "nexmark-kept",
            "q20 of Nexmark with as many kept auctions as one likes: rate and memory",
            "nexmark.kept",
        ),
        _tool(
            "nexmark-picture",
            "the picture of Nexmark in docs/performance.md, from its table",
            "nexmark.picture",
        ),
        _tool("projections", "what steps cost a record, beside another version"),
        _tool("metrics_cost", "what metrics cost a worker"),
        _tool("tracing_cost", "what traces cost a worker"),
        _tool("restore", "how long a shard's state takes to be there again"),
        _tool("decoding", "what it takes to decode one message, by format"),
        _tool("clock_cpu", "the CPU time of each process of a run of A or B while the clock runs"),
        _tool("redis_price", "what a batch of rows costs in a real Redis"),
        _tool(
            "ads_kafka",
            "ads from Kafka into Kafka and PostgreSQL while workers, the broker and the database"
            " are killed",
        ),
        _tool("kafka_rates", "topic to topic beside a real broker"),
        _tool("kafka_latency", "from a record in a topic to the record that is made of it"),
        _tool("debezium", "changes of a table in PostgreSQL, by Debezium over Kafka"),
    )
)
"""By name."""
