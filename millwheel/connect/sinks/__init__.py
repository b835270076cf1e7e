"""Sinks: where results go. ``base`` is the contract: what was committed becomes visible once."""
