"""Byte formats: batches, stores, journals, and the messages of the embedded coordinator."""
