"""Part C on PyFlink in thread mode, its quicker one: two keyed stages, then a function that notes
when it is reached.

RocksDB state with a cache for all keys, exactly-once checkpoints every second. Results are seen
before the checkpoint that covers them: after a crash they are said again. One task per stage, which
is quickest at this rate.
"""

import json
import os
import subprocess
import sys
import time
from pathlib import Path

from pyflink.common import Configuration, Types
from pyflink.datastream import DataStream, StreamExecutionEnvironment
from pyflink.datastream.functions import FlatMapFunction, KeyedProcessFunction
from pyflink.datastream.state import ValueStateDescriptor

GROUPS, WARM_UP_S = 50, 10
OUTPUT = os.path.join(os.environ["BENCH_OUTPUT"], "seen.jsonl")


class Count(KeyedProcessFunction):
    def open(self, context):
        self.count = context.get_state(ValueStateDescriptor("count", Types.LONG()))

    def process_element(self, value, ctx):
        key, created = value
        self.count.update((self.count.value() or 0) + 1)
        yield (key % GROUPS if key >= 0 else -1), 1, created


class Sum(KeyedProcessFunction):
    def open(self, context):
        self.total = context.get_state(ValueStateDescriptor("total", Types.LONG()))

    def process_element(self, value, ctx):
        group, count, created = value
        total = (self.total.value() or 0) + count
        self.total.update(total)
        yield group, total, created


class Note(FlatMapFunction):
    def open(self, context):
        self.out = open(OUTPUT, "ab", buffering=1 << 16)  # noqa: SIM115

    def flat_map(self, value):
        if value[0] >= 0:
            self.out.write(json.dumps([time.time(), [value]]).encode() + b"\n")
        return ()

    def close(self):
        self.out.close()


def parse(line):
    key, created = line.split(" ")
    return int(key), float(created)


def settings():
    found = Configuration()
    for name, value in {
        "parallelism.default": "1",
        "taskmanager.numberOfTaskSlots": "1",
        "taskmanager.memory.managed.size": "1g",
        "state.backend.type": "rocksdb",
        "execution.checkpointing.interval": "1s",
        "execution.checkpointing.mode": "EXACTLY_ONCE",
        "execution.checkpointing.dir": f"file://{os.path.abspath('checkpoint')}",
        "execution.buffer-timeout.interval": "1ms",
        "restart-strategy.type": "none",
        "python.execution-mode": "thread",
        "python.executable": sys.executable,
        "python.client.executable": sys.executable,
        "python.fn-execution.bundle.time": "10",
        "python.state.cache-size": "20000",
    }.items():
        found.set_string(name, value)
    return found


def stream(port):
    environment = StreamExecutionEnvironment.get_execution_environment(settings())
    lines = DataStream(
        environment._j_stream_execution_environment.socketTextStream("127.0.0.1", port)
    )
    ticks = lines.map(parse, Types.TUPLE([Types.LONG(), Types.DOUBLE()]))
    row = Types.TUPLE([Types.LONG(), Types.LONG(), Types.DOUBLE()])
    counts = ticks.key_by(lambda tick: tick[0], Types.LONG()).process(Count(), row)
    sums = counts.key_by(lambda counted: counted[0], Types.LONG()).process(Sum(), row)
    sums.flat_map(Note(), Types.LONG()).print()
    environment.execute("latency")


pacer = str(Path(__file__).with_name("latency_pacer.py"))
with subprocess.Popen([sys.executable, pacer, str(WARM_UP_S)], stdout=subprocess.PIPE) as source:
    try:
        stream(int(source.stdout.readline()))
    finally:
        source.kill()
