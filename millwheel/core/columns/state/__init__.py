"""The state of windows of a kind of their own, in columns."""
