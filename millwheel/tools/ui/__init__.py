"""The page of a run: its graph, anything stuck and its cause, restarts, dead letters, rows. See
docs/ui.md."""
