"""Avro: schemas, plain values from Avro values and back, messages and container files."""
