"""Commands that look at a run and change nothing: status, metrics, logs, and what a machine
lacks."""
