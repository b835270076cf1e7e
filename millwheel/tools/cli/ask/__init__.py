"""Commands for those who ask a running pipeline: named queries, and the gateway."""
