"""Triggers: when a window fires."""
