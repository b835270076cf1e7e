"""Dead letters: read, grouped, and retried."""
