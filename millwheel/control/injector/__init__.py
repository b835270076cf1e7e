"""The watermark service: aggregates what the shards report and broadcasts a low watermark per
node."""
