"""Windows from topic to topic on PyFlink's SQL, exactly once: no Python for each record, a
transaction each checkpoint.

``BENCH_FORM`` is json or avro. State lies in memory, as is its default, and in a checkpoint a
second. It reads to the offsets that are there when it starts, and ends.
"""

import os

from pyflink.common import Configuration
from pyflink.table import EnvironmentSettings, TableEnvironment

FORM, BROKERS = os.environ.get("BENCH_FORM", "json"), os.environ["BENCH_BROKERS"]
SETTINGS = {
    "pipeline.jars": os.environ["BENCH_JARS"],
    "parallelism.default": "1",
    "execution.checkpointing.interval": "1s",
    "execution.checkpointing.mode": "EXACTLY_ONCE",
    # Its default keeps a checkpoint in the heap, up to five megabytes of state.
    "execution.checkpointing.dir": (
        f"file://{os.path.abspath('checkpoint-' + os.environ['BENCH_TOPIC'])}"
    ),
    "state.backend.type": "hashmap",
    "taskmanager.memory.managed.size": "512m",
    "taskmanager.memory.network.max": "64m",
    "pipeline.object-reuse": "true",
}
configuration = Configuration()
for name, value in SETTINGS.items():
    configuration.set_string(name, value)
tables = TableEnvironment.create(
    EnvironmentSettings.new_instance().in_streaming_mode().with_configuration(configuration).build()
)
# Its Avro format reads with the schema that the table makes: all fields, in their order, and none
# that may be null. With fewer of them each message is misread, and a job with checkpoints begins
# again for ever.
FIELDS = "ad_id bigint, `type` string, cost double, ts bigint"
EVENTS = """event_id string not null, ad_id bigint not null, client_id bigint not null,
  uid bigint not null,
  `type` string not null, cost double not null, ts bigint not null"""
tables.execute_sql(f"""create table events ({EVENTS if FORM == "avro" else FIELDS},
      moment as to_timestamp_ltz(ts, 3), watermark for moment as moment - interval '10' second)
    with ('connector' = 'kafka', 'properties.bootstrap.servers' = '{BROKERS}',
      'topic' = '{os.environ["BENCH_INPUT"]}',
      'scan.startup.mode' = 'earliest-offset', 'scan.bounded.mode' = 'latest-offset',
        'format' = '{FORM}')""")
tables.execute_sql(
    f"""create table ctr (ad_id bigint, window_start bigint, impressions bigint, clicks bigint,
      spend double)
    with ('connector' = 'kafka', 'properties.bootstrap.servers' = '{BROKERS}',
      'topic' = '{os.environ["BENCH_TOPIC"]}',
      'key.format' = 'raw', 'key.fields' = 'ad_id', 'value.format' = '{FORM}',
      'sink.delivery-guarantee' = 'exactly-once',
        'sink.transactional-id-prefix' = '{os.environ["BENCH_TOPIC"]}',
      'properties.transaction.timeout.ms' = '600000')"""
)
tables.execute_sql("""insert into ctr select ad_id, max(ts - mod(ts, 60000)),
      count(*) filter (where `type` = 'impression'), count(*) filter (where `type` = 'click'),
        sum(cost)
    from table(tumble(table events, descriptor(moment), interval '1' minute))
    group by ad_id, window_start, window_end""").wait()
