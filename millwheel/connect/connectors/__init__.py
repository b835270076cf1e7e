"""Connectors: one package per external system that records are read from or written to."""
