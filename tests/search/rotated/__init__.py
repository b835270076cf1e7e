"""A search over what may happen to followed files: they grow, are rotated in every way, and their
reader dies.

    python -m tests.search.rotated --seed 1 --runs 1000

A story is a list of steps, drawn from a seed: lines that are written whole, half or broken, files
that are renamed, copied and truncated, deleted, compressed; turns of the source's shard, commits
and applications; crashes, stops, and few allowed open files. The shard and its source are the real
ones, the disk is the real one, the consumer is an inbox. Each line has a number, and must come
once: as a row, or in a dead letter. It may be missing only if one of the losses that
docs/pipeline.md names could have met it. A story that fails is cut down to the steps that matter.
"""
