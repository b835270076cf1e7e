"""Sinks: the outputs of a pipeline. ``base`` is the contract: committed records become visible
once."""
