"""Part B on PyFlink, in ``thread`` or ``process`` mode: RocksDB state, exactly-once checkpoints
every 5 s, Flink's own file sink."""

import math
import os
import sys

import orjson
from pyflink.common import Configuration, Types, WatermarkStrategy
from pyflink.common.serialization import Encoder
from pyflink.datastream import StreamExecutionEnvironment
from pyflink.datastream.connectors.file_system import FileSink, FileSource, StreamFormat
from pyflink.datastream.functions import KeyedProcessFunction
from pyflink.datastream.state import ValueStateDescriptor

MODE = sys.argv[1]
INPUT, OUTPUT = os.environ["BENCH_INPUT"], os.environ["BENCH_OUTPUT"]


class Outliers(KeyedProcessFunction):
    def open(self, context):
        moments = Types.TUPLE([Types.LONG(), Types.DOUBLE(), Types.DOUBLE()])
        self.moments = context.get_state(ValueStateDescriptor("moments", moments))

    def process_element(self, value, ctx):
        ad, _, _, cost, event_id = value
        count, mean, squares = self.moments.value() or (0, 0.0, 0.0)
        if count >= 30:
            deviation = math.sqrt(squares / (count - 1))
            if deviation > 0 and abs((cost - mean) / deviation) > 4:
                yield orjson.dumps(
                    {"event_id": event_id, "ad_id": ad, "z": (cost - mean) / deviation}
                ).decode()
        count += 1
        delta = cost - mean
        mean += delta / count
        self.moments.update((count, mean, squares + delta * (cost - mean)))


def parse(line):
    value = orjson.loads(line)
    return (
        value["ad_id"],
        value["ts"],
        int(value["type"] == "click"),
        value["cost"],
        value["event_id"],
    )


def settings():
    found = Configuration()
    for name, value in {
        "parallelism.default": "2",
        "taskmanager.numberOfTaskSlots": "2",
        "taskmanager.memory.managed.size": "1g",
        "state.backend.type": "rocksdb",
        "execution.checkpointing.interval": "5s",
        "execution.checkpointing.mode": "EXACTLY_ONCE",
        "execution.checkpointing.dir": f"file://{os.path.abspath('checkpoint')}",
        "restart-strategy.type": "none",
        "python.execution-mode": MODE,
        "python.executable": sys.executable,
        "python.client.executable": sys.executable,
        "python.fn-execution.bundle.size": "10000",
        "python.state.cache-size": "20000",
    }.items():
        found.set_string(name, value)
    return found


def stream(environment):
    lines = FileSource.for_record_stream_format(StreamFormat.text_line_format(), INPUT).build()
    row = Types.TUPLE([Types.LONG(), Types.LONG(), Types.LONG(), Types.DOUBLE(), Types.STRING()])
    values = environment.from_source(lines, WatermarkStrategy.no_watermarks(), "events").map(
        parse, row
    )
    rows = values.key_by(lambda value: value[0], Types.LONG()).process(Outliers(), Types.STRING())
    rows.sink_to(FileSink.for_row_format(OUTPUT, Encoder.simple_string_encoder()).build())
    environment.execute("bench")


stream(StreamExecutionEnvironment.get_execution_environment(settings()))
