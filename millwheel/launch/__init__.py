"""Launching: the driver of a run, and the launchers that keep its workers alive."""
