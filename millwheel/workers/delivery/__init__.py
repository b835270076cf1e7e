"""Between shards: outbox, routing, inbox, and what was delivered already."""
