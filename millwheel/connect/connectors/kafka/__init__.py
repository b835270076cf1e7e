"""Kafka: topics as a source with offsets as positions, and as a sink with exactly-once
transactions."""
