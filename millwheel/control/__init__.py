"""The control of a run: owners of shards, watermarks, roots, savepoints."""
