"""The threads beside the loop: each takes work from a queue, blocks in one kind of call, and
enqueues the answer."""
