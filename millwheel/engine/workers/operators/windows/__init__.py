"""Aggregations over windows and change logs, in rows and in columns, and the state of windows."""
