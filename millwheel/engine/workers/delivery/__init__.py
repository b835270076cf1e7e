"""Delivery between shards: outbox, routing, inbox, and high-water marks."""
