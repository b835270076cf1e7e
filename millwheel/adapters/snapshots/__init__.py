"""Snapshots of shards: manifests, blobs, restoring."""
