"""What a run leaves in its root, beside what a later pipeline needs: forms of stored values, kept
state, code."""
