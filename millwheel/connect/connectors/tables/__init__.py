"""Lakehouse tables as sinks: Delta Lake and Apache Iceberg, each batch in one commit of the table
with its number."""
