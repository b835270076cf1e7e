"""The watermark service: aggregates the reports of shards and broadcasts a low watermark per
node."""
