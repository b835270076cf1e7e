"""Formats of messages and files: bytes as records and back, with schemas from files or a registry.
docs/formats.md."""
