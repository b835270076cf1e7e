"""Slices: accumulators of keys and stretches of time, kept to be asked; keys that go idle."""
