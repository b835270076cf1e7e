"""Dead letters: read, grouped, and tried again."""
