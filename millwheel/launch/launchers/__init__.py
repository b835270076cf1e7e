"""Launchers: workers as plain processes or inside Spark executors."""
