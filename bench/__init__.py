"""Measurements, each a command: ``python -m bench NAME``. Figures that the docs quote come from here."""
