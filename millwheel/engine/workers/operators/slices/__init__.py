"""Slices: accumulators of keys and stretches of time, kept for queries; keys that go idle."""
